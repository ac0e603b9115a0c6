#include "server/chief/chief_runner.h"

#include <atomic>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/base/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/chief/files/train_file.h"
#include "tests/common/temp_dir.h"
#include "tests/server/chief/chief_cluster.h"
#include "tests/support/faulty_files.h"
#include "tests/support/wait_until.h"

namespace weir {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

constexpr int kElements = 210;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

void ExpectDone(ChiefCluster* cluster, const std::string& checkpoint,
                float value) {
  const absl::Status status = cluster->Wait();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(*Files::Real()->ReadAll(cluster->options.workdir + "/DONE"),
            checkpoint + "\n");
  const std::vector<float> values = cluster->ValuesOf(checkpoint);
  EXPECT_THAT(values, SizeIs(kElements));
  EXPECT_THAT(values, Each(value));
}

TEST(ChiefRunnerTest, AFullDiskAtTheStartIsTransient) {
  FaultyFiles files(Files::Real());
  ChiefCluster cluster(MakeTempDir(), OnesSpec(10), 1, 1);
  cluster.options.files = &files;
  files.FailCall(1, absl::ResourceExhaustedError("No space left on device"),
                 /*sticky=*/true);
  const absl::Status status = cluster.StartChief();
  EXPECT_EQ(ExitCodeFor(status), kExitRetry) << status;
  EXPECT_THAT(Message(status), HasSubstr("No space left"));
}

TEST(ChiefRunnerTest, OneCallTooManyIsRefused) {
  ChiefCluster cluster(MakeTempDir(), OnesSpec(10), 1, 1);
  ASSERT_TRUE(cluster.StartChief().ok());
  std::atomic<bool> deciding{false};
  std::atomic<bool> go_on{false};
  // Keeps the decision thread.
  cluster.chief->GetStatus([&](const absl::StatusOr<ChiefStatus>&) {
    deciding = true;
    EXPECT_TRUE(WaitUntil([&] { return go_on.load(); }));
  });
  ASSERT_TRUE(WaitUntil([&] { return deciding.load(); }));
  std::atomic<size_t> answered{0};
  std::atomic<size_t> refused{0};
  const auto count = [&](const absl::StatusOr<ChiefStatus>& status) {
    if (absl::IsResourceExhausted(status.status())) {
      ++refused;
    } else {
      ++answered;
    }
  };
  for (size_t i = 0; i < kChiefInboxMax; ++i) {
    cluster.chief->GetStatus(count);
  }
  const size_t before = refused;  // answers of the shard may be in the inbox
  cluster.chief->GetStatus(count);
  EXPECT_EQ(refused, before + 1);
  absl::Status registered;
  cluster.chief->Register(RegisterRequest(),
                          [&](const absl::StatusOr<RegisterReply>& reply) {
                            registered = reply.status();
                          });
  EXPECT_EQ(registered.code(), absl::StatusCode::kResourceExhausted);
  go_on = true;
  EXPECT_TRUE(WaitUntil([&] { return answered + before == kChiefInboxMax; }));
}

TEST(ChiefRunnerTest, AsyncJobFromDeclareToDone) {
  JobSpec spec = OnesSpec(200);
  spec.mutable_checkpoint()->set_every_steps(50);
  ChiefCluster cluster(MakeTempDir(), spec, 2, 2);
  ASSERT_TRUE(cluster.StartChief().ok());
  cluster.Join(0, 1);
  cluster.Join(1, 1);
  ExpectDone(&cluster, "ckpt-200", -200.0f);
  EXPECT_TRUE(cluster.transport.was_shut_down("ps0"));
  EXPECT_TRUE(cluster.transport.was_shut_down("ps1"));
  EXPECT_TRUE(cluster.workers[0]->status().ok());
  EXPECT_GE(cluster.workers[0]->holds, 1);
  // Three are kept and whole. None is torn: all elements are the same.
  const std::vector<std::string> names = cluster.Checkpoints();
  EXPECT_THAT(names, SizeIs(3));
  for (const std::string& name : names) {
    const std::vector<float> values = cluster.ValuesOf(name);
    ASSERT_THAT(values, SizeIs(kElements));
    EXPECT_THAT(values, Each(values[0])) << name;
    EXPECT_EQ(name, absl::StrCat("ckpt-", static_cast<int>(-values[0])));
  }
  TrainFile file(Files::Real(), cluster.options.workdir + "/train.jsonl");
  const auto lines = *file.Read();
  ASSERT_GE(lines.size(), 15u);
  for (size_t i = 1; i < lines.size(); ++i) {
    EXPECT_LT(lines[i - 1].step, lines[i].step);
  }
  EXPECT_EQ(lines.back().step, 200u);
  EXPECT_EQ(lines.back().examples, 2000u);
  EXPECT_THAT(*Files::Real()->ReadAll(cluster.options.workdir +
                                      "/checkpoints/checkpoint"),
              HasSubstr("model_checkpoint_path: \"ckpt-200\""));
}

// A checkpoint's directory comes behind them, and workers wait for it.
TEST(ChiefRunnerTest, LinesThatWaitForTheDiskAreWrittenAtOnce) {
  FaultyFiles files(Files::Real());
  std::atomic<int> writes{0};
  std::atomic<bool> go_on{false};
  const std::string workdir = MakeTempDir();
  files.Watch([&](const std::string& call) {
    if (call == "append " + workdir + "/train.jsonl" && ++writes == 1) {
      EXPECT_TRUE(WaitUntil([&] { return go_on.load(); }));
    }
  });
  ChiefCluster cluster(workdir, OnesSpec(200), 1, 1);
  cluster.options.files = &files;
  ASSERT_TRUE(cluster.StartChief().ok());
  cluster.Join(0);
  EXPECT_TRUE(WaitUntil([&] {
    const auto curve = cluster.chief->WaitForCurve(std::chrono::seconds(1));
    return curve.ok() && curve->step_size() >= 15;
  }));
  go_on = true;
  ExpectDone(&cluster, "ckpt-200", -200.0f);
  // The file, the first line, those that waited, and five after them.
  EXPECT_LE(writes, 8);
  TrainFile file(Files::Real(), workdir + "/train.jsonl");
  EXPECT_THAT(*file.Read(), SizeIs(20));
}

TEST(ChiefRunnerTest, SyncJobWithCheckpointsAtWholePeriods) {
  JobSpec spec = OnesSpec(60, 2);
  spec.mutable_checkpoint()->set_every_steps(20);
  ChiefCluster cluster(MakeTempDir(), spec, 3, 2);
  ASSERT_TRUE(cluster.StartChief().ok());
  cluster.Join(0, 2);
  cluster.Join(1);
  ExpectDone(&cluster, "ckpt-60", -60.0f);
  for (const std::string& name : cluster.Checkpoints()) {
    const std::vector<float> values = cluster.ValuesOf(name);
    EXPECT_EQ(name, absl::StrCat("ckpt-", static_cast<int>(-values[0])));
    EXPECT_THAT(values, Each(values[0]));
  }
}

TEST(ChiefRunnerTest, LostCallsAndAnswersChangeNothing) {
  for (const uint32_t n : {0u, 2u}) {
    ChiefCluster cluster(MakeTempDir(), OnesSpec(40, n), 2, 2);
    cluster.options.spec.mutable_limits()->set_lost_after_seconds(20);
    WireFaults faults;
    faults.lost_before = 0.05;
    faults.lost_after = 0.05;
    cluster.transport.SetFaults(faults);
    ASSERT_TRUE(cluster.StartChief().ok());
    cluster.Join(0);
    cluster.Join(1);
    ExpectDone(&cluster, "ckpt-40", -40.0f);
  }
}

TEST(ChiefRunnerTest,
     AWorkerKilledInsideAContributionIsFinishedByItsReplacement) {
  for (const uint32_t n : {0u, 2u}) {
    JobSpec spec = OnesSpec(100, n);
    spec.mutable_checkpoint()->set_every_steps(10);
    ChiefCluster cluster(MakeTempDir(), spec, 2, 2);
    ASSERT_TRUE(cluster.StartChief().ok());
    cluster.Join(0, 1);
    cluster.Join(1, 1);
    for (int i = 0; i < 3; ++i) {
      const uint64_t before = cluster.workers[1]->contributions;
      ASSERT_TRUE(WaitUntil(
          [&] { return cluster.workers[1]->contributions > before; }));
      cluster.Kill(1);
      cluster.Join(1, 1);
    }
    ExpectDone(&cluster, "ckpt-100", -100.0f);
  }
}

TEST(ChiefRunnerTest, ASecondProcessReplacesTheFirst) {
  ChiefCluster cluster(MakeTempDir(), OnesSpec(100), 1, 1);
  ASSERT_TRUE(cluster.StartChief().ok());
  ChiefCluster::Worker& first = cluster.Join(0, 5);
  ASSERT_TRUE(WaitUntil([&] { return first.contributions > 3; }));
  cluster.Join(0, 1);
  ASSERT_TRUE(WaitUntil([&] { return first.done(); }));
  EXPECT_EQ(first.status().code(), absl::StatusCode::kPermissionDenied);
  ExpectDone(&cluster, "ckpt-100", -100.0f);
}

TEST(ChiefRunnerTest, ARestartedChiefTakesOver) {
  for (const uint32_t n : {0u, 2u}) {
    JobSpec spec = OnesSpec(300, n);
    spec.mutable_checkpoint()->set_every_steps(40);
    ChiefCluster cluster(MakeTempDir(), spec, 2, 2);
    ASSERT_TRUE(cluster.StartChief().ok());
    cluster.Join(0, 1);
    cluster.Join(1, 1);
    for (int i = 0; i < 3; ++i) {
      const uint64_t before = cluster.workers[0]->contributions;
      ASSERT_TRUE(WaitUntil(
          [&] { return cluster.workers[0]->contributions > before + 10; }));
      ASSERT_TRUE(cluster.StartChief().ok());
    }
    ExpectDone(&cluster, "ckpt-300", -300.0f);
    for (const std::string& name : cluster.Checkpoints()) {
      const std::vector<float> values = cluster.ValuesOf(name);
      EXPECT_THAT(values, Each(values[0])) << name;
    }
  }
}

TEST(ChiefRunnerTest, StopsWithACheckpointAndResumesOnAnotherCluster) {
  for (const uint32_t n : {0u, 6u}) {
    const std::string dir = MakeTempDir();
    uint64_t stopped_at = 0;
    {
      ChiefCluster cluster(dir, OnesSpec(150, n), 2, 3);
      ASSERT_TRUE(cluster.StartChief().ok());
      for (int w = 0; w < 3; ++w) {
        cluster.Join(w, 1);
      }
      ASSERT_TRUE(
          WaitUntil([&] { return cluster.workers[2]->contributions > 12; }));
      cluster.chief->RequestStop("SIGINT");
      EXPECT_EQ(cluster.Wait().code(), absl::StatusCode::kCancelled);
      ASSERT_THAT(cluster.Checkpoints(), SizeIs(1));
      const std::string name = cluster.Checkpoints()[0];
      const std::vector<float> values = cluster.ValuesOf(name);
      EXPECT_THAT(values, Each(values[0]));
      stopped_at = static_cast<uint64_t>(-values[0]);
      EXPECT_EQ(name, absl::StrCat("ckpt-", stopped_at));
      ASSERT_LT(stopped_at, 150u);
    }
    ChiefCluster cluster(dir, OnesSpec(150, n), 3, 2);
    EXPECT_TRUE(cluster.StartChief().ok());
    EXPECT_EQ(cluster.Wait(5).code(), absl::StatusCode::kInvalidArgument);
    ASSERT_TRUE(cluster.StartChief(/*resume=*/true).ok());
    cluster.Join(0);
    cluster.Join(1);
    ExpectDone(&cluster, "ckpt-150", -150.0f);
  }
}

TEST(ChiefRunnerTest, ALostPsEndsTheJobAndResumeRestoresTheOthersToo) {
  JobSpec spec = OnesSpec(3000);
  spec.mutable_checkpoint()->set_every_steps(50);
  ChiefCluster cluster(MakeTempDir(), spec, 2, 2);
  ASSERT_TRUE(cluster.StartChief().ok());
  cluster.Join(0, 1);
  cluster.Join(1, 1);
  ASSERT_TRUE(WaitUntil([&] { return cluster.Checkpoints().size() >= 2; }));
  cluster.ReplacePs(1);
  const absl::Status status = cluster.Wait(20);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(Message(status), HasSubstr("ps 1 (ps1)"));
  EXPECT_TRUE(cluster.transport.was_shut_down("ps0"));
  ASSERT_TRUE(cluster.StartChief(/*resume=*/true).ok());
  cluster.Kill(0);
  cluster.Kill(1);
  cluster.Join(0);
  cluster.Join(1);
  ExpectDone(&cluster, "ckpt-3000", -3000.0f);
}

TEST(ChiefRunnerTest, AFinishedJobIsNotStartedAgain) {
  const std::string dir = MakeTempDir();
  {
    ChiefCluster cluster(dir, OnesSpec(10), 1, 1);
    ASSERT_TRUE(cluster.StartChief().ok());
    cluster.Join(0);
    ExpectDone(&cluster, "ckpt-10", -10.0f);
  }
  for (const bool resume : {false, true}) {
    ChiefCluster cluster(dir, OnesSpec(10), 1, 1);
    ASSERT_TRUE(cluster.StartChief(resume).ok());
    EXPECT_TRUE(cluster.Wait(5).ok());
  }
  // With more steps to do the job goes on.
  ChiefCluster longer(dir, OnesSpec(25), 1, 1);
  ASSERT_TRUE(longer.StartChief(/*resume=*/true).ok());
  longer.Join(0);
  ExpectDone(&longer, "ckpt-25", -25.0f);
}

// Two chiefs may be at work at one time where no lock keeps them apart. What
// one has finished the other does not begin again.
TEST(ChiefRunnerTest, TheDoneOfAnotherChiefStays) {
  const std::string dir = MakeTempDir();
  const JobSpec spec = OnesSpec(20);
  {
    ChiefCluster first(dir, spec, 1, 1);
    ASSERT_TRUE(first.StartChief().ok());
    first.Join(0, 1);
    ExpectDone(&first, "ckpt-20", -20.0f);
  }
  const std::string done = dir + "/DONE";
  const std::string contents = *Files::Real()->ReadAll(done);
  ASSERT_TRUE(Files::Real()->Remove(done).ok());
  FaultyFiles files(Files::Real());
  ChiefCluster second(dir, spec, 1, 1);
  second.options.files = &files;
  ASSERT_TRUE(second.StartChief(/*resume=*/true).ok());
  ASSERT_TRUE(Files::Real()->WriteAtomically(done, contents).ok());
  std::atomic<int> removed{0};
  files.Watch(
      [&](const std::string& call) { removed += call == "remove " + done; });
  second.Join(0, 1);
  EXPECT_TRUE(second.Wait().ok());
  EXPECT_EQ(removed, 0);
}

TEST(ChiefRunnerTest, AChiefKilledAfterDoneShutsThePsDownInItsNextLife) {
  ChiefCluster cluster(MakeTempDir(), OnesSpec(10), 2, 1);
  const double quick = cluster.options.end_wait;
  cluster.options.end_wait = 1000;
  ASSERT_TRUE(cluster.StartChief().ok());
  cluster.Join(0);
  const std::string done = cluster.options.workdir + "/DONE";
  ASSERT_TRUE(WaitUntil([&] { return *Files::Real()->Exists(done); }));
  cluster.options.end_wait = quick;
  ASSERT_TRUE(cluster.StartChief().ok());
  ExpectDone(&cluster, "ckpt-10", -10.0f);
  EXPECT_TRUE(cluster.transport.was_shut_down("ps0"));
  EXPECT_TRUE(cluster.transport.was_shut_down("ps1"));
}

TEST(ChiefRunnerTest, StartsFromGivenValues) {
  const std::string dir = MakeTempDir();
  const std::string path = dir + "/init.safetensors";
  const auto write = [&](const std::string& second, int64_t count) {
    auto writer = *SafetensorsWriter::Create(
        Files::Real(), path,
        {{"a", "F32", {150}, 0, 0}, {second, "F32", {count}, 0, 0}}, {});
    const std::vector<float> values(150 + count, 7.0f);
    ASSERT_TRUE(writer->Append(values.data(), (150 + count) * 4).ok());
    ASSERT_TRUE(writer->Finish().ok());
  };
  const auto refused = [&] {
    ChiefCluster cluster(MakeTempDir(), OnesSpec(10), 2, 1);
    cluster.options.init_from = path;
    EXPECT_TRUE(cluster.StartChief().ok());
    cluster.Join(0);
    const absl::Status status = cluster.Wait(10);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return Message(status);
  };
  write("c", 60);
  EXPECT_THAT(refused(), HasSubstr("has no tensor 'b'"));
  write("b", 61);
  EXPECT_THAT(refused(), HasSubstr("has shape [61], the model's is [60]"));
  write("b", 60);
  ChiefCluster cluster(dir, OnesSpec(10), 2, 1);
  cluster.options.init_from = path;
  ASSERT_TRUE(cluster.StartChief().ok());
  cluster.Join(0);
  ExpectDone(&cluster, "ckpt-10", -3.0f);
}

TEST(ChiefRunnerTest, WaitsForTheEvaluatorsLine) {
  JobSpec spec = OnesSpec(10);
  *spec.mutable_evaluation()->mutable_source() = spec.data().train();
  spec.mutable_evaluation()->set_wait_seconds(50);
  ChiefCluster cluster(MakeTempDir(), spec, 1, 1);
  cluster.options.evaluator_expected = true;
  ASSERT_TRUE(cluster.StartChief().ok());
  cluster.Join(0);
  const std::string dir = cluster.options.workdir;
  ASSERT_TRUE(WaitUntil([&] { return *Files::Real()->Exists(dir + "/DONE"); }));
  EXPECT_FALSE(
      cluster.chief->WaitFor(std::chrono::milliseconds(300)).has_value());
  std::ofstream(dir + "/eval.jsonl") << R"({"checkpoint":"ckpt-10","step":10})"
                                     << "\n";
  ExpectDone(&cluster, "ckpt-10", -10.0f);
}

// Looks that wait for one another would read the file again and again.
TEST(ChiefRunnerTest, LooksOnceAtATimeForTheEvaluatorsLine) {
  JobSpec spec = OnesSpec(10);
  *spec.mutable_evaluation()->mutable_source() = spec.data().train();
  spec.mutable_evaluation()->set_wait_seconds(50);
  const std::string dir = MakeTempDir();
  const std::string path = dir + "/eval.jsonl";
  std::ofstream(path) << R"({"checkpoint":"ckpt-5","step":5})"
                      << "\n";
  FaultyFiles files(Files::Real());
  std::atomic<int> looks{0};
  std::atomic<bool> go_on{false};
  files.Watch([&](const std::string& call) {
    if (call == "open " + path && ++looks == 1) {
      EXPECT_TRUE(WaitUntil([&] { return go_on.load(); }));
    }
  });
  ChiefCluster cluster(dir, spec, 1, 1);
  cluster.options.files = &files;
  cluster.options.evaluator_expected = true;
  ASSERT_TRUE(cluster.StartChief().ok());
  cluster.Join(0);
  ASSERT_TRUE(WaitUntil([&] { return looks == 1; }));
  // Time for five more.
  EXPECT_FALSE(
      cluster.chief->WaitFor(std::chrono::milliseconds(1100)).has_value());
  std::ofstream(path, std::ios::app) << R"({"checkpoint":"ckpt-10","step":10})"
                                     << "\n";
  go_on = true;
  ExpectDone(&cluster, "ckpt-10", -10.0f);
  EXPECT_EQ(looks, 1);
}

TEST(ChiefRunnerTest, RefusesWhatCannotRun) {
  ChiefRunner::Options options;
  EXPECT_EQ(ChiefRunner::Create(options).status().code(),
            absl::StatusCode::kInternal);
  InProcessTransport transport;
  options.transport = &transport;
  EXPECT_THAT(Message(ChiefRunner::Create(options).status()),
              HasSubstr("0 ps"));
  options.ps_addresses = {"ps0"};
  EXPECT_THAT(Message(ChiefRunner::Create(options).status()),
              HasSubstr("--workdir"));
}

}  // namespace
}  // namespace weir
