// `weir trace` of a running job of two ps, two workers and a chief: what is in
// the file is what the workers reported, and belongs together.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/integration/hand_cluster.h"
#include "tests/integration/harness.h"

namespace weir {
namespace {

using nlohmann::json;

// A job of several blocks on each of two ps, whose end is far.
std::string Job() {
  std::string job = DigitsJob(1000000, "update { sync { contributions: 2 } }");
  const auto replace = [&](const std::string& from, const std::string& to) {
    job.replace(job.find(from), from.size(), to);
  };
  replace("units: 8", "units: 64");
  replace("log_every_steps: 10", "log_every_steps: 1");
  return job;
}

struct Slice {
  double begin_us = 0;
  double end_us = 0;
  std::string name;
  json args;
};

// What the file says, by the names of tasks and lanes.
struct Timeline {
  explicit Timeline(const json& file) : other(file["otherData"]) {
    std::map<int, std::string> tasks;
    std::map<int, std::string> lanes;
    for (const json& event : file["traceEvents"]) {
      const int pid = event["pid"];
      const std::string phase = event["ph"];
      if (phase == "M") {
        const json& name = event["args"].value("name", json());
        if (event["name"] == "process_name") {
          tasks[pid] = name;
        } else if (event["name"] == "thread_name") {
          lanes[event["tid"]] = name;
        }
      } else if (phase == "X") {
        const double begin_us = event["ts"];
        slices[tasks[pid]][lanes[event["tid"]]].push_back(
            {begin_us, begin_us + event["dur"].get<double>(), event["name"],
             event.value("args", json())});
      } else {
        flows[event["id"]].push_back({phase, tasks[pid]});
      }
    }
  }

  json other;
  // By task and lane, in the order of the file.
  std::map<std::string, std::map<std::string, std::vector<Slice>>> slices;
  // By number: phases and the tasks that they are in.
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> flows;
};

void ExpectNesting(const Timeline& timeline) {
  constexpr double kRoundingUs = 0.002;
  for (const auto& [task, lanes] : timeline.slices) {
    for (const auto& [lane, slices] : lanes) {
      std::vector<double> ends;
      for (const Slice& slice : slices) {
        while (!ends.empty() && ends.back() <= slice.begin_us + kRoundingUs) {
          ends.pop_back();
        }
        if (!ends.empty()) {
          EXPECT_LE(slice.end_us, ends.back() + kRoundingUs)
              << task << ", " << lane << ": " << slice.name;
        }
        ends.push_back(slice.end_us);
      }
    }
  }
}

// A flow of a block that was pushed, applied and pulled again.
int CountWholeFlows(const Timeline& timeline) {
  int whole = 0;
  for (const auto& [id, places] : timeline.flows) {
    std::set<std::string> seen;
    for (const auto& [phase, task] : places) {
      seen.insert(phase + (task.find("worker") == 0 ? " worker" : " ps"));
    }
    whole += seen == std::set<std::string>{"s worker", "t ps", "f worker"};
  }
  return whole;
}

using Waits = std::map<std::string, double>;  // seconds, by name

// The waits of each of a worker's steps, by the contribution's number.
std::map<uint64_t, Waits> WaitsOf(const std::vector<Slice>& lane) {
  std::map<uint64_t, Waits> waits;
  const Slice* step = nullptr;
  for (const Slice& slice : lane) {
    if (slice.name == "step") {
      step = &slice;
      waits[slice.args["sequence"]]["step"] =
          (slice.end_us - slice.begin_us) * 1e-6;
    } else if (step != nullptr && slice.begin_us < step->end_us &&
               slice.name.find(" wait") != std::string::npos) {
      waits[step->args["sequence"]][slice.name] +=
          (slice.end_us - slice.begin_us) * 1e-6;
    }
  }
  return waits;
}

// What the chief had heard when it wrote a line of train.jsonl. Workers report
// twice a second, each for itself, and a step has a line when both have
// reported it: so one of them had reported `less` contributions, and the other
// one `more`.
struct Heard {
  uint64_t less = 0;
  uint64_t more = 0;
  json phases;
};

// The newest line of each report, from the first whose contributions are all
// among [begin, end) on to the last one.
std::vector<Heard> LinesWithin(const HandCluster& cluster, uint64_t begin,
                               uint64_t end) {
  std::vector<Heard> found;
  const std::vector<json> lines = cluster.curve();
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    const json phases = lines[i].value("phases", json::object());
    const uint64_t count = phases.value("contributions", uint64_t{0});
    const uint64_t step = lines[i]["step"];
    if (count >= 2 * step && step >= begin && count - step <= end &&
        lines[i + 1]["phases"]["contributions"] != count) {
      found.push_back({step, count - step, phases});
    }
  }
  return found;
}

// The waits of the contributions [begin, end) of one worker.
void AddWaits(const std::map<uint64_t, Waits>& worker, uint64_t begin,
              uint64_t end, Waits* sum) {
  for (uint64_t sequence = begin; sequence < end; ++sequence) {
    ASSERT_TRUE(worker.contains(sequence)) << sequence;
    for (const auto& [name, seconds] : worker.at(sequence)) {
      (*sum)[name] += seconds;
    }
  }
}

void ExpectTheReportedWaits(const Timeline& timeline,
                            const HandCluster& cluster) {
  const std::map<uint64_t, Waits> workers[] = {
      WaitsOf(timeline.slices.at("worker 0").at("train")),
      WaitsOf(timeline.slices.at("worker 1").at("train"))};
  ASSERT_FALSE(workers[0].empty());
  ASSERT_FALSE(workers[1].empty());
  const std::vector<Heard> lines = LinesWithin(
      cluster, std::max(workers[0].begin()->first, workers[1].begin()->first),
      std::min(workers[0].rbegin()->first, workers[1].rbegin()->first) + 1);
  ASSERT_GE(lines.size(), 2);
  const Heard& from = lines.front();
  const Heard& to = lines.back();
  ASSERT_GT(to.less, from.more + 20);
  const std::map<std::string, std::string> fields = {
      {"data wait", "data_wait_seconds"},
      {"pull wait", "pull_wait_seconds"},
      {"push wait", "push_wait_seconds"}};
  // The lines do not say which of the two has reported more, so the one way of
  // the four counts that fits best. All of them have nearly the same steps.
  double best = 1e9;
  std::string told;
  for (const bool first_has_more_before : {false, true}) {
    for (const bool first_has_more_after : {false, true}) {
      Waits traced;
      AddWaits(workers[0], first_has_more_before ? from.more : from.less,
               first_has_more_after ? to.more : to.less, &traced);
      AddWaits(workers[1], first_has_more_before ? from.less : from.more,
               first_has_more_after ? to.less : to.more, &traced);
      double worst = 0;
      std::string text;
      for (const auto& [name, field] : fields) {
        const double reported =
            to.phases[field].get<double>() - from.phases[field].get<double>();
        // Both come of the same clock readings; lines have nine digits.
        worst = std::max(worst, (std::abs(traced[name] - reported) - 1e-4) /
                                    std::max(reported, 1e-9));
        text += name + ": " + std::to_string(traced[name]) +
                " s in the timeline, " + std::to_string(reported) +
                " s reported\n";
      }
      if (worst < best) {
        best = worst;
        told = text;
      }
    }
  }
  std::printf("%s", told.c_str());
  EXPECT_LT(best, 0.02) << told;
}

class TraceTest : public testing::Test {
 protected:
  TraceTest() : cluster_(FreshDir("trace"), Job(), 2, 2, true) {
    cluster_.StartAll();
    const json tasks = {
        {"cluster",
         {{"ps", {cluster_.address("ps", 0), cluster_.address("ps", 1)}},
          {"worker",
           {cluster_.address("worker", 0), cluster_.address("worker", 1)}},
          {"chief", {cluster_.chief_address()}}}}};
    WriteFile(cluster_.dir() + "/cluster.json", tasks.dump());
  }

  // Runs `weir trace` of this job, as its admin.
  CommandResult Trace(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"trace", cluster_.dir()});
    return RunWeir(flags, {SecurityVariable(PeerRole::kAdmin)});
  }

  HandCluster cluster_;
};

TEST_F(TraceTest, TheFileIsWhatTheJobDid) {
  ASSERT_TRUE(WaitUntil(60, [&] { return cluster_.step() >= 50; }));
  const std::string path = cluster_.dir() + "/trace.json";
  const CommandResult result = Trace({"--seconds", "3", "--out", path});
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("ui.perfetto.dev"), std::string::npos);
  // The workers' reports on it follow: the steps of a line are in reports.
  const uint64_t after = cluster_.step();
  ASSERT_TRUE(WaitUntil(60, [&] { return cluster_.step() > after + 150; }));

  const Timeline timeline(json::parse(ReadFile(path)));
  for (const char* task : {"chief", "ps 0", "ps 1", "worker 0", "worker 1"}) {
    EXPECT_TRUE(timeline.slices.contains(task)) << task;
  }
  ExpectNesting(timeline);
  EXPECT_GT(CountWholeFlows(timeline), 100);
  ExpectTheReportedWaits(timeline, cluster_);
  for (const json& task : timeline.other["tasks"]) {
    // On one host all tasks read the same clock.
    EXPECT_LE(std::abs(task["clock_ahead_ns"].get<int64_t>()),
              task["clock_off_by_ns"].get<int64_t>() + 1)
        << task;
  }
}

TEST_F(TraceTest, OneIsTakenAtATimeAndWhoDoesNotAnswerIsLeftOut) {
  ASSERT_TRUE(WaitUntil(60, [&] { return cluster_.step() >= 50; }));
  Process first({Binary("deploy/cli/weir_cli"), "trace", cluster_.dir(),
                 "--seconds", "2", "--out", cluster_.dir() + "/first.json"},
                {SecurityVariable(PeerRole::kAdmin)},
                cluster_.dir() + "/first.log");
  const std::string path = cluster_.dir() + "/second.json";
  CommandResult second;
  // Until the first one has begun, the second one may be the one that is taken.
  ASSERT_TRUE(WaitUntil(30, [&] {
    second = Trace({"--seconds", "1", "--out", path});
    return second.exit_code != 0 || !first.running();
  }));
  first.Wait(60);
  const std::string said = second.output + first.Log();
  EXPECT_NE(said.find("another trace is being taken"), std::string::npos)
      << said;
  cluster_.task("ps", 1).Signal(SIGSTOP);
  const CommandResult rest = Trace({"--seconds", "1", "--out", path});
  cluster_.task("ps", 1).Signal(SIGCONT);
  EXPECT_EQ(rest.exit_code, 0) << rest.output;
  EXPECT_NE(rest.output.find("ps 1 does not answer, so it is left out"),
            std::string::npos)
      << rest.output;
}

}  // namespace
}  // namespace weir
