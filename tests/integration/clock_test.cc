// The wall clock is set back and forward by an hour under running jobs, for one
// task and for all: nothing may follow it but what a person reads. Each task is
// a real process with a preloaded clock (tests/support/preload_clock.cc).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/hand_cluster.h"
#include "tests/integration/harness.h"

namespace weir {
namespace {

constexpr char kPreload[] = "tests/support/preload_clock.so";
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kHourNs = 3600 * kSecondNs;
// The jobs' lease: how long a silent task is waited for.
constexpr int kLostAfterSeconds = 2;
// In this time a task that waits for the wall clock would be called lost.
constexpr double kLongerThanALease = 1.75 * kLostAfterSeconds;

using Names = std::vector<std::string>;

constexpr char kDense[] = R"(
model {
  layer { name: "flat" flatten {} }
  layer { name: "logits" dense { units: 10 } }
  loss { softmax_cross_entropy {} }
}
data { train { digits { count: 500 } } }
optimizer { adam {} }
schedule { learning_rate: 0.002 }
)";

constexpr char kTables[] = R"(
table {
  name: "ads" dim: 4 optimizer { adagrad {} } schedule { learning_rate: 0.05 }
  expiry { seconds: 600 }
}
model {
  layer { name: "ads" embedding_bag { table: "ads" feature: "C1" } }
  layer { name: "flat" input: "ads" flatten {} }
  layer { name: "logit" dense { units: 1 } }
  loss { sigmoid_cross_entropy {} }
}
data {
  train {
    click_log { count: 500 numeric: 1 categorical: 1 ids_per_feature: 400 }
  }
}
optimizer { adagrad {} }
schedule { learning_rate: 0.05 }
)";

std::string Job(const std::string& name, const std::string& kind,
                const std::string& update) {
  return "name: '" + name + "' seed: 3 " + kind +
         "train { batch_size: 16 steps: 100000000 log_every_steps: 5 } "
         "checkpoint { every_seconds: 0.3 } "
         "limits { block_elements: 1024 lost_after_seconds: " +
         std::to_string(kLostAfterSeconds) + " } update { " + update + " }";
}

// The clocks of a cluster's tasks, each a file that the test writes into.
class Clocks {
 public:
  explicit Clocks(std::string dir) : dir_(std::move(dir)) {}

  // The processes that are started next have the clock `name`.
  void Preload(const std::string& name) {
    names_.push_back(name);
    Set({name}, 0);
    setenv("LD_PRELOAD", Binary(kPreload).c_str(), 1);
    setenv("WEIR_TEST_WALL_OFFSET", Path(name).c_str(), 1);
  }
  static void EndPreload() {
    unsetenv("LD_PRELOAD");
    unsetenv("WEIR_TEST_WALL_OFFSET");
  }
  const Names& names() const { return names_; }

  // Writes in place, since the tasks have the files mapped.
  void Set(const Names& names, int64_t offset_ns) {
    for (const std::string& name : names) {
      const int file = open(Path(name).c_str(), O_WRONLY | O_CREAT, 0600);
      EXPECT_EQ(pwrite(file, &offset_ns, sizeof(offset_ns), 0),
                static_cast<ssize_t>(sizeof(offset_ns)));
      close(file);
    }
  }

 private:
  std::string Path(const std::string& name) const {
    return dir_ + "/clock-" + name;
  }

  const std::string dir_;
  Names names_;
};

// Whether the newest line of a log has the time of a clock that is so far ahead
// of ours, or behind where it is negative.
bool EndsAhead(const std::string& log, int64_t offset_ns) {
  constexpr int64_t kOldestLineSeconds = 300;
  const size_t before = log.rfind('\n', log.find_last_not_of('\n'));
  const std::string line =
      log.substr(before == std::string::npos ? 0 : before + 1);
  tm utc = {};
  return strptime(line.c_str(), "%Y-%m-%dT%H:%M:%S", &utc) != nullptr &&
         std::abs(timegm(&utc) - time(nullptr) - offset_ns / kSecondNs) <
             kOldestLineSeconds;
}

// A job that runs until it is stopped: a chief, a ps and two workers.
struct RunningJob {
  RunningJob(const std::string& name, const std::string& kind,
             const std::string& update)
      : cluster(FreshDir("clock_" + name), Job(name, kind, update), 1, 2, true),
        clocks(cluster.dir()) {
    for (const auto& [role, index] : kTasks) {
      Start(role, index);
    }
  }

  void Start(const std::string& role, int index) {
    clocks.Preload(role + std::to_string(index));
    cluster.Start(role, index);
    Clocks::EndPreload();
  }

  std::string Logs() {
    std::string all;
    for (const auto& [role, index] : kTasks) {
      all += "--- " + role + "/" + std::to_string(index) + "\n" +
             cluster.task(role, index).Log();
    }
    return all;
  }
  // Waits until what a task logs tells that its clock has this offset.
  void ExpectClock(const std::string& role, int index, int64_t offset_ns) {
    EXPECT_TRUE(WaitUntil(
        10,
        [&] { return EndsAhead(cluster.task(role, index).Log(), offset_ns); }))
        << role << "/" << index << " is not " << offset_ns << " ns ahead\n"
        << Logs();
  }
  std::set<std::string> Checkpoints() const {
    const Names names = cluster.checkpoints();
    return {names.begin(), names.end()};
  }

  // Waits until steps were taken and a new checkpoint was committed.
  void ExpectProgress(const std::string& phase) {
    const uint64_t step = cluster.step();
    const std::set<std::string> before = Checkpoints();
    EXPECT_TRUE(WaitUntil(30,
                          [&] {
                            const std::set<std::string> now = Checkpoints();
                            return cluster.step() > step &&
                                   !std::includes(before.begin(), before.end(),
                                                  now.begin(), now.end());
                          }))
        << phase << ": step " << cluster.step() << " after " << step << "\n"
        << Logs();
  }

  static inline const std::vector<std::pair<std::string, int>> kTasks = {
      {"ps", 0}, {"chief", 0}, {"worker", 0}, {"worker", 1}};
  HandCluster cluster;
  Clocks clocks;
};

using Jobs = std::vector<std::unique_ptr<RunningJob>>;

// Steps the clock of `name`, or of all, in every job.
void Step(const Jobs& jobs, const std::string& name, int64_t offset_ns) {
  for (const auto& job : jobs) {
    job->clocks.Set(name.empty() ? job->clocks.names() : Names{name},
                    offset_ns);
  }
}

void ExpectProgress(const Jobs& jobs, const std::string& phase) {
  for (const auto& job : jobs) {
    job->ExpectProgress(phase);
  }
}

// Stops a job all of whose clocks are `offset_ns` ahead.
void Stop(RunningJob* job, int64_t offset_ns) {
  job->cluster.task("chief", 0).Signal(SIGTERM);
  EXPECT_EQ(job->cluster.task("chief", 0).Wait(30), 143) << job->Logs();
  for (const auto& [role, index] : RunningJob::kTasks) {
    EXPECT_NE(job->cluster.task(role, index).Wait(30), -1) << job->Logs();
    job->ExpectClock(role, index, offset_ns);
  }
}

TEST(ClockTest, JobsGoOnWhileTheWallClockSteps) {
  Jobs jobs;
  jobs.push_back(std::make_unique<RunningJob>("async", kDense, "async {}"));
  jobs.push_back(std::make_unique<RunningJob>("sync", kDense,
                                              "sync { contributions: 2 }"));
  jobs.push_back(std::make_unique<RunningJob>("tables", kTables, "async {}"));
  ExpectProgress(jobs, "at first");
  for (const int64_t step : {-kHourNs, kHourNs}) {
    const std::string by = step < 0 ? "an hour back" : "an hour forward";
    // To set the clock back is the dangerous direction.
    for (const std::string& name : step < 0
                                       ? Names{"ps0", "chief0", "worker0", ""}
                                       : Names{"chief0", ""}) {
      if (HasFailure()) {
        return;
      }
      Step(jobs, name, step);
      ExpectProgress(jobs, by + " for " + (name.empty() ? "all" : name));
      for (const auto& job : jobs) {
        job->ExpectClock("chief", 0, name == "ps0" ? 0 : step);
      }
    }
    Step(jobs, "", 0);
  }
  Step(jobs, "", kHourNs);
  for (const auto& job : jobs) {
    Stop(job.get(), kHourNs);
    EXPECT_EQ(job->Logs().find("no heartbeat"), std::string::npos)
        << job->Logs();
  }
}

// In such a job only timed waits make anything happen: heartbeats, and wants
// that come back to be asked again.
TEST(ClockTest, WhoWaitsForAnotherKeepsItsLeaseWhileTheWallClockSteps) {
  Jobs jobs;
  jobs.push_back(std::make_unique<RunningJob>("waiting", kDense,
                                              "sync { contributions: 2 }"));
  RunningJob& job = *jobs[0];
  job.ExpectProgress("at first");
  for (const int64_t step : {-kHourNs, kHourNs}) {
    job.cluster.task("worker", 1).Signal(SIGKILL);
    job.cluster.task("worker", 1).Wait(10);
    Step(jobs, "", step);
    EXPECT_FALSE(WaitUntil(kLongerThanALease, [&] {
      return !job.cluster.task("worker", 0).running();
    })) << job.Logs();
    job.Start("worker", 1);
    job.ExpectProgress("after the step");
  }
  Step(jobs, "", kHourNs);  // the last worker began without
  Stop(&job, kHourNs);
  const std::string log = job.cluster.task("worker", 0).Log();
  EXPECT_EQ(log.find("the heartbeat ended"), std::string::npos) << log;
}

// A program that trains through the client library, under `weir run`.
TEST(ClockTest, AProgramUnderRunLearnsWhileItsClockSteps) {
  for (const int64_t step : {-kHourNs, kHourNs}) {
    const std::string dir = FreshDir("clock_run");
    Clocks clocks(dir);
    clocks.Preload("all");
    Process run({Binary("deploy/cli/weir_cli"), "run", "--ps", "2", "--workers",
                 "2", "--", "/bin/sh", "-c",
                 "while [ ! -e $DIR/stepped ]; do sleep 0.05; done; exec " +
                     Binary("examples/sdk_linear")},
                {"WEIR_BIN_DIR=" + Binary("."), "DIR=" + dir}, dir + "/output");
    Clocks::EndPreload();
    EXPECT_TRUE(WaitUntil(30, [&] {
      return run.Log().find("[ps/1] ") != std::string::npos;
    })) << run.Log();
    clocks.Set({"all"}, step);
    WriteFile(dir + "/stepped", "");
    EXPECT_EQ(run.Wait(30), 0) << run.Log();
    for (const char* worker : {"0", "1"}) {
      EXPECT_NE(run.Log().find(std::string("[worker/") + worker +
                               "] y = 3.000 x0 + -2.000 x1 + 0.500"),
                std::string::npos)
          << run.Log();
    }
  }
}

}  // namespace
}  // namespace weir
