// Stops of real jobs: what was done is in the checkpoint that they leave.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/hand_cluster.h"
#include "tests/integration/harness.h"

namespace weir {
namespace {

using Task = std::pair<std::string, int>;

// Returns a job that writes no checkpoint by itself and whose end is far.
std::string Job(const std::string& mode, int steps = 1000000) {
  return DigitsJob(steps, "update { " + mode + " }");
}

constexpr char kDiesInsideAContribution[] = "WEIR_FAILPOINT=worker.mid_push:40";
constexpr char kAsync[] = "async {}";
constexpr char kSync[] = "sync { contributions: 4 }";

// Returns the step of the newest checkpoint, 0 without one.
uint64_t SavedStep(const HandCluster& cluster) {
  uint64_t step = 0;
  for (const std::string& name : cluster.checkpoints()) {
    const auto manifest = nlohmann::json::parse(
        ReadFile(cluster.dir() + "/checkpoints/" + name + "/manifest.json"),
        nullptr, false);
    if (!manifest.is_object() || !manifest.contains("step")) {
      continue;
    }
    const nlohmann::json& value = manifest["step"];
    step = std::max<uint64_t>(step, value.is_string()
                                        ? std::stoull(std::string(value))
                                        : value.get<uint64_t>());
  }
  return step;
}

std::string Logs(HandCluster* cluster, const std::vector<Task>& tasks) {
  std::string all;
  for (const auto& [role, index] : tasks) {
    all += role + "/" + std::to_string(index) + ":\n" +
           cluster->task(role, index).Log();
  }
  return all;
}

const std::vector<Task> kTasks = {
    {"ps", 0}, {"ps", 1}, {"chief", 0}, {"worker", 0}, {"worker", 1}};

// At the end of a pod or of a node every task is told at once.
void ExpectSavesWhenAllAreTerminated(const std::string& mode,
                                     const std::string& name,
                                     const std::vector<Task>& order) {
  HandCluster cluster(FreshDir("stop_" + name), Job(mode), 2, 2, true);
  cluster.StartAll();
  ASSERT_TRUE(WaitUntil(60, [&] { return cluster.step() >= 100; }))
      << Logs(&cluster, kTasks);
  const uint64_t done = cluster.step();
  for (const auto& [role, index] : order) {
    cluster.task(role, index).Signal(SIGTERM);
  }
  for (const auto& [role, index] : kTasks) {
    EXPECT_EQ(cluster.task(role, index).Wait(25), 143)
        << role << "/" << index << "\n"
        << Logs(&cluster, kTasks);
  }
  const uint64_t saved = SavedStep(cluster);
  EXPECT_GE(saved, done) << Logs(&cluster, kTasks);
  // No line of train.jsonl tells of a step that is lost.
  EXPECT_LE(cluster.step(), saved);
  EXPECT_GE(cluster.step() + 20, saved);

  cluster.StartAll({"--resume"});
  EXPECT_TRUE(WaitUntil(60, [&] { return cluster.step() > saved; }))
      << Logs(&cluster, kTasks);
  EXPECT_NE(cluster.task("chief", 0)
                .Log()
                .find("training from " +
                      std::string(mode == kAsync ? "contribution " : "step ") +
                      std::to_string(saved)),
            std::string::npos)
      << cluster.task("chief", 0).Log();
}

TEST(StopTest, AsyncIsSavedWhenEveryTaskIsTerminated) {
  ExpectSavesWhenAllAreTerminated(kAsync, "async_ps_first", kTasks);
  std::vector<Task> order = kTasks;
  std::reverse(order.begin(), order.end());
  ExpectSavesWhenAllAreTerminated(kAsync, "async_workers_first", order);
}

TEST(StopTest, SyncIsSavedWhenEveryTaskIsTerminated) {
  ExpectSavesWhenAllAreTerminated(kSync, "sync_ps_first", kTasks);
  std::vector<Task> order = kTasks;
  std::reverse(order.begin(), order.end());
  ExpectSavesWhenAllAreTerminated(kSync, "sync_workers_first", order);
}

// A node of one ps is drained. Nobody ends with 0: the job is not done, and an
// operator starts all tasks again.
TEST(StopTest, APsThatIsTerminatedAloneStopsTheJobAfterACheckpoint) {
  HandCluster cluster(FreshDir("stop_one_ps"), Job(kAsync), 2, 2, true);
  cluster.StartAll();
  ASSERT_TRUE(WaitUntil(60, [&] { return cluster.step() >= 100; }));
  const uint64_t done = cluster.step();
  cluster.task("ps", 1).Signal(SIGTERM);
  for (const auto& [role, index] : kTasks) {
    EXPECT_EQ(cluster.task(role, index).Wait(25),
              role == "ps" && index == 1 ? 143 : 138)
        << role << "/" << index << "\n"
        << Logs(&cluster, kTasks);
  }
  EXPECT_GE(SavedStep(cluster), done) << Logs(&cluster, kTasks);
  EXPECT_NE(cluster.task("chief", 0).Log().find("was asked to end"),
            std::string::npos);
}

// A worker's replacement may never come.
TEST(StopTest, SyncIsSavedWithoutTheWorkersThatDied) {
  for (const int killed : {1, 2}) {
    HandCluster cluster(FreshDir("stop_sync_" + std::to_string(killed)),
                        Job(kSync), 2, 2, true);
    cluster.StartAll();
    ASSERT_TRUE(WaitUntil(60, [&] { return cluster.step() >= 100; }))
        << Logs(&cluster, kTasks);
    for (int w = 0; w < killed; ++w) {
      cluster.task("worker", w).Signal(SIGKILL);
      cluster.task("worker", w).Wait(5);
    }
    const uint64_t done = cluster.step();
    cluster.task("chief", 0).Signal(SIGTERM);
    EXPECT_EQ(cluster.task("chief", 0).Wait(25), 143)
        << cluster.task("chief", 0).Log();
    EXPECT_GE(SavedStep(cluster), done) << cluster.task("chief", 0).Log();
    for (const int ps : {0, 1}) {
      EXPECT_EQ(cluster.task("ps", ps).Wait(10), 138);
    }
  }
}

// Worker 1 dies when some blocks have its contribution and others lack it, and
// nobody comes in its place: the one that lives finishes it.
void ExpectFinishesTheContributionOfADeadWorker(HandCluster* cluster) {
  for (const auto& [role, index] : kTasks) {
    cluster->Start(role, index, {},
                   role == "worker" && index == 1
                       ? std::vector<std::string>{kDiesInsideAContribution}
                       : std::vector<std::string>{});
  }
  ASSERT_EQ(cluster->task("worker", 1).Wait(60), 137) << Logs(cluster, kTasks);
  cluster->task("chief", 0).Signal(SIGTERM);
  EXPECT_EQ(cluster->task("chief", 0).Wait(40), 143) << Logs(cluster, kTasks);
  const std::string log = cluster->task("chief", 0).Log();
  EXPECT_NE(log.find("is to finish contribution 39 of worker 1"),
            std::string::npos)
      << log;
  EXPECT_NE(log.find("stopped after ckpt-"), std::string::npos) << log;
  EXPECT_EQ(log.find("a part of the blocks"), std::string::npos) << log;
}

TEST(StopTest, AsyncIsSavedWithTheContributionThatADeadWorkerLeft) {
  HandCluster cluster(FreshDir("stop_torn_async"), Job(kAsync), 2, 2, true);
  ExpectFinishesTheContributionOfADeadWorker(&cluster);
  EXPECT_GE(SavedStep(cluster), 40u);
}

TEST(StopTest, SyncIsSavedWithTheContributionThatADeadWorkerLeft) {
  const std::string dir = FreshDir("stop_torn_sync");
  {
    HandCluster cluster(dir, Job(kSync, 400), 2, 2, true);
    ExpectFinishesTheContributionOfADeadWorker(&cluster);
    EXPECT_EQ(SavedStep(cluster), 20u);
  }
  const std::string job = dir + "/job.textproto";
  const TrainRun resumed =
      RunTrain(dir, {job, "--resume", "--ps", "1", "--workers", "2"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  const TrainRun whole = RunTrain(FreshDir("stop_torn_whole"),
                                  {job, "--ps", "2", "--workers", "1"});
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_EQ(resumed.summary["model_sha256"], whole.summary["model_sha256"]);
}

// The launcher starts no task again once the job ends.
TEST(StopTest, CtrlCJustAfterAWorkerDiedLosesNothing) {
  const std::string dir = FreshDir("stop_ctrl_c");
  WriteFile(dir + "/job.textproto", Job(kSync));
  const std::string workdir = dir + "/run";
  Process process = StartTrain(
      workdir, {dir + "/job.textproto", "--ps", "1", "--workers", "2"});
  ASSERT_TRUE(WaitUntil(60, [&] {
    return ReadJsonLines(workdir + "/train.jsonl").size() >= 10;
  })) << process.Log();
  const std::vector<pid_t> workers =
      FindProcesses({"worker/weir_worker", workdir});
  ASSERT_FALSE(workers.empty());
  const size_t lines = ReadJsonLines(workdir + "/train.jsonl").size();
  kill(workers.back(), SIGKILL);
  process.Signal(SIGINT);
  const TrainRun run = FinishTrain(&process, workdir);
  EXPECT_EQ(run.exit_code, 130) << run.output;
  const auto curve = ReadJsonLines(workdir + "/train.jsonl");
  ASSERT_GE(curve.size(), lines) << run.output;
  EXPECT_NE(run.output.find("stopped after ckpt-"), std::string::npos)
      << run.output;
}

}  // namespace
}  // namespace weir
