// Sync training ends with the same bits for any number of ps and workers, with
// and without failures.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>
#include <tuple>

#include "tests/integration/harness.h"

namespace weir {
namespace {

// The model has about 9,000 parameters: with blocks of 1 Ki elements every
// shard has several.
constexpr char kJob[] = R"(
name: "sync" seed: 3
model {
  layer { name: "conv" conv2d { filters: 4 kernel_size: 5 stride: 2 } }
  layer { name: "norm" batch_norm {} }
  layer { name: "relu1" relu {} }
  layer { name: "flat" flatten {} }
  layer { name: "hidden" dense { units: 14 } }
  layer { name: "relu2" relu {} }
  layer { name: "drop" dropout { rate: 0.1 } }
  layer { name: "logits" dense { units: 10 } }
  loss { softmax_cross_entropy {} }
}
data { train { digits { count: 2000 } } }
train { batch_size: 16 steps: 40 log_every_steps: 5 }
optimizer { adam {} }
schedule { learning_rate: 0.002 warmup_steps: 5 }
update { sync { contributions: 4 } }
limits { block_elements: 1024 }
)";

std::string JobFile() {
  static const std::string path = [] {
    const std::string file = FreshDir("sync_job") + "/job.textproto";
    WriteFile(file, kJob);
    return file;
  }();
  return path;
}

std::vector<std::string> Arguments(int ps, int workers,
                                   const std::string& transport = "shm") {
  return {JobFile(),
          "--ps",
          std::to_string(ps),
          "--workers",
          std::to_string(workers),
          "--transport",
          transport};
}

// The bits of one undisturbed run, computed once.
const std::string& Expected() {
  static const std::string sha = [] {
    const TrainRun run = RunTrain(FreshDir("sync_1_1"), Arguments(1, 1));
    EXPECT_EQ(run.exit_code, 0) << run.output;
    return run.summary.value("model_sha256", "");
  }();
  return sha;
}

void ExpectSameBits(const TrainRun& run) {
  ASSERT_EQ(run.exit_code, 0) << run.output;
  ASSERT_EQ(Expected().size(), 64u);
  EXPECT_EQ(run.summary["model_sha256"], Expected());
  EXPECT_EQ(run.summary["steps"], 40);
}

TEST(SyncTest, SameBitsForAnyNumberOfPsAndWorkers) {
  for (const auto& [ps, workers, transport] :
       std::vector<std::tuple<int, int, std::string>>{{1, 4, "grpc"},
                                                      {2, 2, "grpc"},
                                                      {2, 2, "shm"},
                                                      {3, 4, "shm"},
                                                      {2, 3, "auto"}}) {
    SCOPED_TRACE(std::to_string(ps) + " ps, " + std::to_string(workers) +
                 " workers, " + transport);
    ExpectSameBits(
        RunTrain(FreshDir("sync_n"), Arguments(ps, workers, transport)));
  }
}

TEST(SyncTest, SeveralChannelsToAPsChangeNothing) {
  std::vector<std::string> arguments = Arguments(2, 2, "grpc");
  arguments.insert(arguments.end(), {"--channels_per_peer", "3"});
  ExpectSameBits(RunTrain(FreshDir("sync_channels"), arguments));
  const TrainRun run = RunTrain(FreshDir("sync_channels_failpoint"), arguments,
                                {"WEIR_FAILPOINT_WORKER_1=worker.mid_push:5"});
  ExpectSameBits(run);
  EXPECT_GE(Restarts(run), 1) << "the failpoint was never reached";
}

TEST(SyncTest, ADedicatedChiefChangesNothing) {
  std::vector<std::string> arguments = Arguments(2, 2);
  arguments.push_back("--chief");
  ExpectSameBits(RunTrain(FreshDir("sync_chief"), arguments));
}

TEST(SyncTest, SameBitsWhenAWorkerDiesAtAFailpoint) {
  for (const char* failpoint :
       {"worker.mid_push:5", "worker.mid_fanout:7", "worker.in_barrier:9"}) {
    for (const char* worker : {"0", "1"}) {
      SCOPED_TRACE(std::string(failpoint) + " in worker " + worker);
      const TrainRun run = RunTrain(
          FreshDir("sync_failpoint"),
          Arguments(2, 2, worker[0] == '0' ? "grpc" : "shm"),
          {std::string("WEIR_FAILPOINT_WORKER_") + worker + "=" + failpoint});
      ExpectSameBits(run);
      EXPECT_GE(Restarts(run), 1) << "the failpoint was never reached";
    }
  }
}

// With certificates fewer of them: a worker that comes again then proves itself
// in another way, and the rest is the same.
int MostKills() {
  return std::getenv("WEIR_TEST_CERTIFICATES") == nullptr ? 20 : 9;
}

TEST(SyncTest, SameBitsThroughManyRandomKills) {
  const std::string dir = FreshDir("sync_kills");
  std::vector<std::string> arguments = Arguments(2, 3);
  arguments.insert(arguments.end(),
                   {"--max_restarts", "100", "--set",
                    "train.steps=" + std::to_string(300 * MostKills()), "--set",
                    "train.log_every_steps=1"});
  // The same job runs once without a failure.
  const TrainRun expected = RunTrain(FreshDir("sync_kills_ref"), arguments);
  ASSERT_EQ(expected.exit_code, 0) << expected.output;

  Process process = StartTrain(dir, arguments);
  std::mt19937 random(20);
  size_t lines = 0;
  int kills = 0;
  // How many kills come before the end depends on the machine.
  const auto ended = [&] { return std::filesystem::exists(dir + "/DONE"); };
  for (; kills < MostKills(); ++kills) {
    std::vector<pid_t> workers;
    ASSERT_TRUE(WaitUntil(
        30,
        [&] {
          workers = FindProcesses({"worker/weir_worker", dir});
          // Every second kill waits until the job has gone on.
          return ended() ||
                 (workers.size() == 3 &&
                  (kills % 2 == 0 ||
                   ReadJsonLines(dir + "/train.jsonl").size() > lines));
        }))
        << "after " << kills << " kills";
    // Hits workers from before they register to well into their steps.
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 250));
    if (ended()) {
      break;
    }
    lines = ReadJsonLines(dir + "/train.jsonl").size();
    kill(workers[random() % workers.size()], SIGKILL);
  }
  const TrainRun run = FinishTrain(&process, dir);
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(run.summary["model_sha256"], expected.summary["model_sha256"]);
  EXPECT_GE(kills, 8);
  EXPECT_GE(Restarts(run), 6);
}

TEST(SyncTest, SameBitsWhenStoppedHalfWayAndResumedOnOtherNumbers) {
  const std::string dir = FreshDir("sync_resume");
  std::vector<std::string> arguments = Arguments(3, 2);
  // Large batches, so that a step is long beside the reports of progress.
  arguments.insert(arguments.end(),
                   {"--set", "train.batch_size=256", "--set", "train.steps=300",
                    "--set", "train.log_every_steps=1"});
  const TrainRun expected = RunTrain(FreshDir("sync_resume_ref"), arguments);
  ASSERT_EQ(expected.exit_code, 0) << expected.output;

  Process process = StartTrain(dir, arguments);
  ASSERT_TRUE(WaitUntil(
      60, [&] { return ReadJsonLines(dir + "/train.jsonl").size() >= 40; }));
  process.Signal(SIGINT);
  const TrainRun stopped = FinishTrain(&process, dir);
  EXPECT_EQ(stopped.exit_code, 130) << stopped.output;
  EXPECT_LT(stopped.summary["steps"], 250);

  arguments[2] = "2";
  arguments[4] = "4";
  arguments.push_back("--resume");
  const TrainRun resumed = RunTrain(dir, arguments);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(resumed.summary["model_sha256"], expected.summary["model_sha256"]);
  EXPECT_EQ(resumed.summary["examples"], expected.summary["examples"]);
  EXPECT_EQ(ReadJsonLines(dir + "/train.jsonl").size(), 300u);
}

}  // namespace
}  // namespace weir
