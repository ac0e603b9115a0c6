// `weir trace` of a running job of two ps, two workers and a chief: what is in
// the file is what the workers reported, and belongs together.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
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

// Lines of train.jsonl whose phases are those of whole steps of both workers.
std::map<uint64_t, json> WholeLines(const HandCluster& cluster) {
  std::map<uint64_t, json> lines;
  for (const json& line : cluster.curve()) {
    if (line.contains("phases") &&
        line["phases"]["contributions"] == 2 * line["step"].get<uint64_t>()) {
      lines[line["step"]] = line["phases"];
    }
  }
  return lines;
}

void ExpectTheReportedWaits(const Timeline& timeline,
                            const std::map<uint64_t, json>& lines) {
  const auto first = WaitsOf(timeline.slices.at("worker 0").at("train"));
  const auto second = WaitsOf(timeline.slices.at("worker 1").at("train"));
  ASSERT_FALSE(first.empty());
  ASSERT_FALSE(second.empty());
  // Sequence i of either worker is its contribution to step i.
  const uint64_t begin = std::max(first.begin()->first, second.begin()->first);
  const uint64_t end =
      std::min(first.rbegin()->first, second.rbegin()->first) + 1;
  const auto from = lines.lower_bound(begin);
  auto to = lines.upper_bound(end);
  ASSERT_NE(from, lines.end());
  ASSERT_NE(to, lines.begin());
  --to;
  ASSERT_GT(to->first, from->first + 20) << "steps " << begin << " to " << end;
  Waits traced;
  for (const auto* const worker : {&first, &second}) {
    for (uint64_t step = from->first; step < to->first; ++step) {
      ASSERT_TRUE(worker->contains(step)) << step;
      for (const auto& [name, seconds] : worker->at(step)) {
        traced[name] += seconds;
      }
    }
  }
  for (const auto& [name, field] :
       std::map<std::string, std::string>{{"data wait", "data_wait_seconds"},
                                          {"pull wait", "pull_wait_seconds"},
                                          {"push wait", "push_wait_seconds"}}) {
    const double reported =
        to->second[field].get<double>() - from->second[field].get<double>();
    // Both come of the same clock readings; the file has whole nanoseconds, and
    // the lines nine digits.
    EXPECT_NEAR(traced[name], reported, 0.02 * reported + 1e-4) << name;
    std::printf("%s: %.6f s in the timeline, %.6f s reported\n", name.c_str(),
                traced[name], reported);
  }
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
  const CommandResult result = Trace({"--seconds", "2", "--out", path});
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("ui.perfetto.dev"), std::string::npos);
  const uint64_t after = cluster_.step();
  ASSERT_TRUE(WaitUntil(60, [&] { return cluster_.step() > after; }));

  const Timeline timeline(json::parse(ReadFile(path)));
  for (const char* task : {"chief", "ps 0", "ps 1", "worker 0", "worker 1"}) {
    EXPECT_TRUE(timeline.slices.contains(task)) << task;
  }
  ExpectNesting(timeline);
  EXPECT_GT(CountWholeFlows(timeline), 100);
  ExpectTheReportedWaits(timeline, WholeLines(cluster_));
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
                 "--seconds", "4", "--out", cluster_.dir() + "/first.json"},
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
