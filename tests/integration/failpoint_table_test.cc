// Kills a process at every failpoint, in async, sync and bounded staleness,
// with and without tables, in mid-run and near the end of a job. Whatever dies:
//
// - A chief, worker or evaluator is started again, and the job ends well.
// - Without a ps every task ends with 138, and the job that is started again,
//   from its checkpoint if it has one, ends well.
// - At the end every task has ended with 0, each contribution was applied once
//   to every parameter, sync has the bits of an undisturbed run, and every
//   checkpoint that is left is whole.
//
// A row is one point in one task of one kind of job at one time. Which hit of a
// point is the middle or the last one is counted in an undisturbed run of the
// same job. failpoint_table_test runs each tenth row, failpoint_table_full_test
// all of them, by name or by ./weir test --full.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/integration/harness.h"

namespace weir {
namespace {

#ifdef WEIR_EVERY_ROW
constexpr size_t kEvery = 1;
#else
constexpr size_t kEvery = 10;
#endif

// Rows mostly wait: for processes to start, and for a lost ps to be noticed.
constexpr int kThreads = 4;
constexpr double kRunSeconds = 120;
// How often a run is tried that is to meet a place or to leave a checkpoint.
constexpr int kTries = 6;
constexpr int kContributions = 800;
// The model is small: a job must last for several heartbeats of its workers,
// which is when its chief sees that a checkpoint is due.
constexpr char kSlowly[] = "worker.before_push:8ms";

struct Kind {
  const char* mode;
  const char* update;
  bool sync;
  bool tables;
};
constexpr Kind kKinds[] = {
    {"async", "async {}", false, false},
    {"async", "async {}", false, true},
    {"sync", "sync { contributions: 2 }", true, false},
    {"sync", "sync { contributions: 2 }", true, true},
    {"staleness", "bounded_staleness { bound: 2 }", false, false},
    {"staleness", "bounded_staleness { bound: 2 }", false, true},
};

// A place in one task of the job.
struct Point {
  const char* name;
  const char* task;
  bool resumes;  // is reached by a job that goes on from a checkpoint
};
constexpr Point kPoints[] = {
    {"chief.after_manifest", "chief-0", false},
    {"chief.before_declare", "chief-0", false},
    {"chief.before_done", "chief-0", false},
    {"chief.before_hold", "chief-0", false},
    {"chief.before_manifest", "chief-0", false},
    {"chief.before_shutdown", "chief-0", false},
    {"chief.before_snapshot", "chief-0", false},
    {"chief.gc", "chief-0", false},
    {"chief.mid_declare", "chief-0", false},
    {"chief.mid_restore", "chief-0", true},
    {"evaluator.mid_read", "evaluator-0", false},
    {"files.after_rename", "chief-0", false},
    {"files.after_rename", "ps-1", false},
    {"files.before_rename", "chief-0", false},
    {"files.before_rename", "ps-1", false},
    {"ps.before_ack", "ps-1", false},
    {"ps.before_apply", "ps-1", false},
    {"ps.before_restore", "ps-1", true},
    {"ps.before_table_apply", "ps-1", false},
    {"ps.before_table_write", "ps-1", false},
    {"ps.before_write", "ps-1", false},
    {"ps.mid_apply", "ps-1", false},
    {"ps.mid_restore", "ps-1", true},
    {"ps.mid_write", "ps-1", false},
    {"ps.recv", "ps-1", false},
    {"worker.before_ack", "worker-1", false},
    {"worker.before_batch", "worker-1", false},
    {"worker.before_pull", "worker-1", false},
    {"worker.before_push", "worker-1", false},
    {"worker.before_register", "worker-1", false},
    {"worker.before_register", "worker-1", true},
    {"worker.before_rows", "worker-1", false},
    {"worker.in_barrier", "worker-1", false},
    {"worker.mid_fanout", "worker-1", false},
    {"worker.mid_push", "worker-1", false},
};

// Says why this kind of job never reaches the point; null when it does.
const char* WhyNotReached(const Point& point, const Kind& kind) {
  const std::string name = point.name;
  if (!kind.tables &&
      (name == "ps.before_table_apply" || name == "ps.before_table_write" ||
       name == "worker.before_rows")) {
    return "the job has no tables";
  }
  if (kind.sync && name == "chief.before_hold") {
    return "sync has versions and holds nobody";
  }
  if (kind.sync && name == "ps.mid_apply") {
    return "sync applies a sum aside and shows it whole";
  }
  return nullptr;
}

int Steps(const Kind& kind) {
  return kind.sync ? kContributions / 2 : kContributions;
}

std::string JobText(const Kind& kind) {
  std::string text = R"(name: "points" seed: 3
train { batch_size: 8 steps: STEPS log_every_steps: 1 }
data {
  train { click_log { count: 2000 SHAPE } }
}
evaluation {
  source { click_log { count: 40 stream: 1 SHAPE } }
}
optimizer { adagrad {} }
schedule { learning_rate: 0.05 }
update { UPDATE }
checkpoint { every_steps: EVERY keep: 1 }
limits { block_elements: 16 lost_after_seconds: 3 }
model {
  TABLE layer { name: "hidden" dense { units: 8 } }
  layer { name: "relu" relu {} }
  layer { name: "logit" dense { units: 1 } }
  loss { sigmoid_cross_entropy {} }
}
)";
  const auto replace = [&text](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  const std::string shape =
      "numeric: 5 categorical: 1 ids_per_feature: 300 bag_size: 1";
  replace("SHAPE", shape);  // of the training data
  replace("SHAPE", shape);  // of the evaluation's
  replace("STEPS", std::to_string(Steps(kind)));
  replace("EVERY", std::to_string(Steps(kind) / 10));
  replace("UPDATE", kind.update);
  replace("TABLE", kind.tables ? R"(
  layer { name: "bag" embedding_bag { table: "ads" feature: "C1" } }
  layer { name: "flat" flatten {} }
  layer { name: "in" input: "features" input: "flat" concat {} })"
                               : "");
  if (kind.tables) {
    text += R"(table {
  name: "ads" dim: 4 optimizer { adagrad {} } schedule { learning_rate: 0.05 }
})";
  }
  return text;
}

struct Row {
  const Point* point;
  const Kind* kind;
  bool late;

  std::string Name() const {
    return std::string(kind->mode) + (kind->tables ? "_tables" : "_dense") +
           "_" + point->name + "_" + point->task +
           (point->resumes ? "_resumed" : "") + (late ? "_late" : "_mid");
  }
};

std::vector<Row> AllRows() {
  std::vector<Row> rows;
  for (const Point& point : kPoints) {
    for (const Kind& kind : kKinds) {
      for (const bool late : {false, true}) {
        rows.push_back({&point, &kind, late});
      }
    }
  }
  return rows;
}

// The value of WEIR_FAILPOINT for each task's first process, by task.
using Armed = std::map<std::string, std::string>;

// "worker-1", "what" -> "WEIR_FAILPOINT_WORKER_1=what"
std::string Variable(std::string task, const std::string& what) {
  for (char& c : task) {
    c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
  }
  return "WEIR_FAILPOINT_" + task + "=" + what;
}

TrainRun Train(const std::string& dir, const Kind& kind, bool resume,
               Armed armed) {
  std::vector<std::string> environment;
  for (const char* worker : {"worker-0", "worker-1"}) {
    std::string& what = armed[worker];
    what = what.empty() ? kSlowly : what + "," + kSlowly;
  }
  for (const auto& [task, what] : armed) {
    environment.push_back(Variable(task, what));
  }
  WriteFile(dir + ".textproto", JobText(kind));
  std::vector<std::string> arguments = {dir + ".textproto", "--ps", "2",
                                        "--workers",        "2",    "--chief",
                                        "--max_restarts",   "10"};
  if (resume) {
    arguments.push_back("--resume");
  }
  return RunTrain(dir, arguments, environment, kRunSeconds);
}

// Returns the header of a safetensors file; null when it cannot be read.
nlohmann::json SafetensorsHeader(const std::string& bytes) {
  uint64_t size = 0;
  if (bytes.size() < sizeof(size)) {
    return nullptr;
  }
  std::memcpy(&size, bytes.data(), sizeof(size));
  return nlohmann::json::parse(bytes.substr(sizeof(size), size), nullptr,
                               /*allow_exceptions=*/false);
}

// How often each segment of the newest checkpoint's shards was updated, and
// their tables as a whole.
std::vector<int64_t> Updates(const TrainRun& run) {
  std::vector<int64_t> counts;
  const std::string dir =
      run.workdir + "/checkpoints/" + run.summary.value("checkpoint", "none");
  for (const char* shard : {"0", "1"}) {
    const std::string of = std::string(shard) + "-of-2.safetensors";
    const std::string bytes = ReadFile(dir + "/shard-" + of);
    const nlohmann::json header = SafetensorsHeader(bytes);
    if (header.contains("step_counts")) {
      uint64_t size = 0;
      std::memcpy(&size, bytes.data(), sizeof(size));
      const auto& offsets = header["step_counts"]["data_offsets"];
      const size_t begin = 8 + size + offsets[0].get<size_t>();
      const size_t end = 8 + size + offsets[1].get<size_t>();
      for (size_t at = begin; at + 8 <= std::min(end, bytes.size()); at += 8) {
        counts.push_back(0);
        std::memcpy(&counts.back(), bytes.data() + at, 8);
      }
    }
    const nlohmann::json rows =
        SafetensorsHeader(ReadFile(dir + "/tables-" + of));
    if (rows.contains("__metadata__")) {
      counts.push_back(std::stoll(
          rows["__metadata__"].value("weir.step.ads", std::string("-1"))));
    }
  }
  return counts;
}

// The results of undisturbed runs of one kind of job.
struct Undisturbed {
  std::string sha;
  std::vector<int64_t> updates;
  // Hits by task and name: of a run from the beginning, and of runs that go on
  // after their ps died in mid-run and near the end.
  std::map<std::string, int64_t> hits;
  std::array<std::map<std::string, int64_t>, 2> resumed_hits;
};

const std::vector<std::string>& Tasks() {
  static const std::vector<std::string> tasks = {
      "chief-0", "evaluator-0", "ps-0", "ps-1", "worker-0", "worker-1"};
  return tasks;
}

Armed CountEverywhere() {
  Armed armed;
  for (const std::string& task : Tasks()) {
    armed[task] = "count";
  }
  return armed;
}

// "ps-1 ps.recv" -> 602, of what Tasks() say in their logs.
std::map<std::string, int64_t> ReadHits(const std::string& dir) {
  std::map<std::string, int64_t> hits;
  for (const std::string& task : Tasks()) {
    std::istringstream log(ReadFile(dir + "/logs/" + task + ".log"));
    for (std::string line; std::getline(log, line);) {
      char name[64];
      long long count = 0;
      if (std::sscanf(line.c_str(), "failpoint %63[a-z._]: reached %lld times",
                      name, &count) == 2) {
        hits[task + " " + name] = count;
      }
    }
  }
  return hits;
}

// Returns a hit near the end. Of many it is not the very last, since their
// number varies a bit.
int64_t LateHit(int64_t hits) { return hits - hits / 50; }
int64_t MidHit(int64_t hits) { return (hits + 1) / 2; }

// The complaints about one run or row; empty when all is well.
using Complaints = std::vector<std::string>;

void Expect(bool holds, const std::string& what, Complaints* complaints) {
  if (!holds) {
    complaints->push_back(what);
  }
}

std::string CodesOf(const TrainRun& run) {
  std::string codes;
  for (const auto& task : run.summary["tasks"]) {
    codes += " " + task["role"].get<std::string>() + "-" +
             std::to_string(task["index"].get<int>()) + ":" +
             std::to_string(task["exit_code"].get<int>()) + "(" +
             std::to_string(task["restarts"].get<int>()) + ")";
  }
  return codes;
}

// Checks a job that is done: codes of all tasks, counts, bits, checkpoints.
void ExpectDone(const TrainRun& run, const Kind& kind,
                const Undisturbed* undisturbed, Complaints* complaints) {
  Expect(run.exit_code == 0,
         "the job ended with " + std::to_string(run.exit_code) + ":\n" +
             run.output,
         complaints);
  if (!run.summary.is_object()) {
    complaints->push_back("there is no summary.json");
    return;
  }
  const auto& tasks = run.summary["tasks"];
  Expect(std::all_of(tasks.begin(), tasks.end(),
                     [](const auto& task) { return task["exit_code"] == 0; }),
         "tasks ended with" + CodesOf(run), complaints);
  const nlohmann::json manifest = nlohmann::json::parse(
      ReadFile(run.workdir + "/checkpoints/" +
               run.summary.value("checkpoint", "none") + "/manifest.json"),
      nullptr, /*allow_exceptions=*/false);
  Expect(manifest.is_object() &&
             manifest.value("step", "") == std::to_string(Steps(kind)),
         "the last checkpoint is " + run.summary.value("checkpoint", "none"),
         complaints);
  Expect(std::filesystem::exists(run.workdir + "/DONE"), "there is no DONE",
         complaints);
  if (undisturbed != nullptr) {
    Expect(Updates(run) == undisturbed->updates,
           "a parameter was not updated once by each contribution", complaints);
    Expect(!kind.sync || run.summary["model_sha256"] == undisturbed->sha,
           "the bits are others", complaints);
  }
  int whole = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(run.workdir + "/checkpoints")) {
    if (!std::filesystem::exists(entry.path() / "manifest.json")) {
      continue;
    }
    Process verify({Binary("deploy/cli/weir_cli"), "checkpoint", "verify",
                    entry.path().string()},
                   {}, run.workdir + ".verify.log");
    Expect(verify.Wait(kRunSeconds) == 0, verify.Log(), complaints);
    ++whole;
  }
  Expect(whole > 0, "there is no checkpoint", complaints);
}

// Checks a job that has ended because a ps died.
void ExpectLostPs(const TrainRun& run, const std::string& victim,
                  Complaints* complaints) {
  Expect(run.exit_code == 138,
         "without " + victim + " the job ended with " +
             std::to_string(run.exit_code) + ":\n" + run.output,
         complaints);
  for (const auto& task : run.summary["tasks"]) {
    const int code = task["exit_code"];
    const bool is_ps = task["role"] == "ps";
    const std::string name = task["role"].get<std::string>() + "-" +
                             std::to_string(task["index"].get<int>());
    bool good = code == 138 || code == 143;
    if (name == victim) {
      good = code == 137;
    } else if (is_ps) {
      good = good || code == 0;  // the chief may have told it to end
    }
    Expect(good,
           "after the loss of " + victim + " tasks ended with" + CodesOf(run),
           complaints);
  }
}

bool HasCheckpoint(const std::string& dir) {
  std::error_code missing;
  for (const auto& entry :
       std::filesystem::directory_iterator(dir + "/checkpoints", missing)) {
    if (std::filesystem::exists(entry.path() / "manifest.json")) {
      return true;
    }
  }
  return false;
}

// Stops a fresh run behind a checkpoint, half way or near its end, by the death
// of ps 0. A busy machine may have written none by then: it is tried again, and
// ps 0 dies later.
void Halve(const std::string& dir, const Kind& kind,
           const Undisturbed& undisturbed, bool late, Complaints* complaints) {
  const int64_t hits = undisturbed.hits.at("ps-0 ps.before_ack");
  const int64_t first = late ? LateHit(hits) : MidHit(hits);
  for (int i = 0; i < kTries; ++i) {
    const int64_t nth = std::min(first + i * hits / 16, LateHit(hits));
    std::filesystem::remove_all(dir);
    ExpectLostPs(Train(dir, kind, false,
                       {{"ps-0", "ps.before_ack:" + std::to_string(nth)}}),
                 "ps-0", complaints);
    if (HasCheckpoint(dir)) {
      return;
    }
  }
  Expect(false, "the run before it left no checkpoint", complaints);
}

Undisturbed RunUndisturbed(const Kind& kind, const std::set<bool>& resumed,
                           Complaints* complaints) {
  const std::string dir = FreshDir(std::string("points_") + kind.mode +
                                   (kind.tables ? "_tables" : "_dense"));
  Undisturbed undisturbed;
  const TrainRun run = Train(dir, kind, false, CountEverywhere());
  ExpectDone(run, kind, nullptr, complaints);
  if (!complaints->empty()) {
    return undisturbed;
  }
  undisturbed.sha = run.summary.value("model_sha256", "");
  undisturbed.updates = Updates(run);
  undisturbed.hits = ReadHits(dir);
  const std::vector<int64_t>& updates = undisturbed.updates;
  const int64_t steps = Steps(kind);
  Expect(!updates.empty() && std::all_of(updates.begin(), updates.end(),
                                         [steps, &kind](int64_t count) {
                                           return count == steps ||
                                                  (kind.tables && count > 0);
                                         }),
         "an undisturbed run does not update each parameter in each step",
         complaints);
  for (const bool late : resumed) {
    const std::string again = dir + (late ? "_late" : "_mid");
    Halve(again, kind, undisturbed, late, complaints);
    const TrainRun rest = Train(again, kind, true, CountEverywhere());
    ExpectDone(rest, kind, &undisturbed, complaints);
    undisturbed.resumed_hits[late ? 1 : 0] = ReadHits(again);
  }
  return undisturbed;
}

std::string RowDir(const Row& row) {
  return testing::TempDir() + "/weir_points_" + row.Name();
}

std::string VictimsLog(const Row& row) {
  return ReadFile(RowDir(row) + "/logs/" + row.point->task + ".log");
}

// Makes the run that the nth hit of the row's point disturbs.
TrainRun Fire(const Row& row, const Undisturbed& undisturbed, int64_t nth,
              Complaints* complaints) {
  const std::string dir = RowDir(row);
  std::filesystem::remove_all(dir);
  if (row.point->resumes) {
    Halve(dir, *row.kind, undisturbed, row.late, complaints);
  }
  return Train(dir, *row.kind, row.point->resumes,
               {{row.point->task,
                 std::string(row.point->name) + ":" + std::to_string(nth)}});
}

// Runs one row; `reached` tells whether its point killed the task.
Complaints RunRow(const Row& row, const Undisturbed& undisturbed,
                  bool* reached) {
  Complaints complaints;
  const std::string victim = row.point->task;
  const auto& hits = row.point->resumes ? undisturbed.resumed_hits[row.late]
                                        : undisturbed.hits;
  const auto found = hits.find(victim + " " + row.point->name);
  const int64_t count = found == hits.end() ? 0 : found->second;
  if (const char* const why_not = WhyNotReached(*row.point, *row.kind)) {
    Expect(count == 0, std::string("is reached, though ") + why_not,
           &complaints);
    return complaints;
  }
  int64_t nth = row.late || row.point->resumes ? LateHit(count) : MidHit(count);
  TrainRun run;
  // How many hits there are varies a bit, above all with the checkpoints that a
  // run finds time for: without a hit an earlier one is tried.
  for (int tries = 0; tries < kTries && !*reached; ++tries) {
    nth = std::max<int64_t>(nth, 1);
    run = Fire(row, undisturbed, nth, &complaints);
    *reached =
        VictimsLog(row).find(std::string("failpoint ") + row.point->name +
                             ": SIGKILL") != std::string::npos;
    nth -= std::max<int64_t>(nth / 4, 1);
  }
  Expect(*reached,
         "was not reached again; an undisturbed run reached it " +
             std::to_string(count) + " times",
         &complaints);
  if (*reached && victim == "ps-1") {
    ExpectLostPs(run, victim, &complaints);
    // Without a checkpoint there is nothing to go on from.
    const bool resume = HasCheckpoint(RowDir(row));
    if (!resume) {
      std::filesystem::remove_all(RowDir(row));
    }
    run = Train(RowDir(row), *row.kind, resume, {});
  }
  ExpectDone(run, *row.kind, &undisturbed, &complaints);
  if (complaints.empty()) {
    std::filesystem::remove_all(RowDir(row));
  }
  return complaints;
}

// Calls `run` with 0 .. count - 1, on kThreads threads.
void InParallel(size_t count, const std::function<void(size_t)>& run) {
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (size_t at = next++; at < count; at = next++) {
        run(at);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

void Report(const std::string& what, const Complaints& complaints) {
  for (const std::string& complaint : complaints) {
    ADD_FAILURE() << what << ": " << complaint;
  }
}

TEST(FailpointTableTest, WhateverDiesWhereverTheJobEndsWell) {
  std::vector<Row> rows;
  std::map<const Kind*, std::set<bool>> resumed;
  const std::vector<Row> all = AllRows();
  for (size_t i = 0; i < all.size(); i += kEvery) {
    // Rows in mid-run and near the end alternate; so each tenth has both.
    const Row& row = all[kEvery == 1 ? i : (i + i / 60) % all.size()];
    rows.push_back(row);
    if (row.point->resumes) {
      resumed[row.kind].insert(row.late);
    }
  }
  const size_t kinds = std::size(kKinds);
  std::vector<Undisturbed> undisturbed(kinds);
  std::vector<Complaints> first(kinds);
  InParallel(kinds, [&](size_t k) {
    undisturbed[k] = RunUndisturbed(kKinds[k], resumed[&kKinds[k]], &first[k]);
  });
  for (size_t k = 0; k < kinds; ++k) {
    Report(std::string("undisturbed ") + kKinds[k].mode, first[k]);
  }
  ASSERT_FALSE(HasFailure());

  std::vector<Complaints> complaints(rows.size());
  std::vector<int> reached(rows.size(), 0);
  InParallel(rows.size(), [&](size_t i) {
    bool fired = false;
    complaints[i] = RunRow(rows[i], undisturbed[rows[i].kind - kKinds], &fired);
    reached[i] = fired ? 1 : 0;
    std::fprintf(stderr, "%s: %s\n", rows[i].Name().c_str(),
                 complaints[i].empty() ? "good" : complaints[i][0].c_str());
  });
  std::set<std::string> fired;
  for (size_t i = 0; i < rows.size(); ++i) {
    Report(rows[i].Name(), complaints[i]);
    if (reached[i] != 0) {
      fired.insert(rows[i].point->name);
    }
  }
  std::printf("%zu rows, %d of them killed a task, at %zu points\n",
              rows.size(),
              static_cast<int>(std::count(reached.begin(), reached.end(), 1)),
              fired.size());
  if (kEvery == 1) {
    for (const Point& point : kPoints) {
      EXPECT_EQ(fired.count(point.name), 1u) << point.name;
    }
  }
}

}  // namespace
}  // namespace weir
