// Bad input gives one clear line that names the offending thing and the right
// exit code, and crashes nothing.
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/integration/hand_cluster.h"
#include "tests/integration/harness.h"

namespace weir {
namespace {

constexpr char kJob[] = R"(
name: "bad" seed: 1
model {
  layer { name: "flat" flatten {} }
  layer { name: "logits" dense { units: 10 } }
  loss { softmax_cross_entropy {} }
}
data { train { digits { count: 500 } } }
train { batch_size: 10 steps: 200 log_every_steps: 1 }
optimizer { sgd {} }
schedule { learning_rate: 0.1 }
update { async {} }
checkpoint { every_steps: 50 keep: 10 }
)";

std::string WriteJob(const std::string& name, const std::string& text) {
  const std::string path = FreshDir("job_" + name) + "/job.textproto";
  WriteFile(path, text);
  return path;
}

std::string Replace(std::string text, const std::string& from,
                    const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

struct BadJob {
  std::string name, from, to, says;
  int exit_code;
};

class BadJobTest : public testing::TestWithParam<BadJob> {};

TEST_P(BadJobTest, IsRefusedByNameBeforeAnythingIsLost) {
  const BadJob& bad = GetParam();
  const std::string job = WriteJob(bad.name, Replace(kJob, bad.from, bad.to));
  const std::string dir = FreshDir("bad_" + bad.name);
  WriteFile(dir + ".libsvm", "1 1:2 2:0.5\n0 1:1 2:oops\n");
  WriteFile(dir + ".label", "5 1:2\n77 1:1\n");
  const TrainRun run =
      RunTrain(dir, {job, "--data_dir", testing::TempDir()}, {}, 60);
  EXPECT_EQ(run.exit_code, bad.exit_code) << run.output;
  EXPECT_NE(run.output.find(bad.says), std::string::npos)
      << "does not say '" << bad.says << "':\n"
      << run.output;
}

INSTANTIATE_TEST_SUITE_P(
    All, BadJobTest,
    testing::Values(
        BadJob{"unknown_field", "seed: 1", "sead: 1", "sead", 2},
        BadJob{"unknown_layer", "dense { units: 10 }", "dents { units: 10 }",
               "dents", 2},
        BadJob{"no_units", "units: 10", "units: 0", "model.layer[1]", 2},
        BadJob{"shapes", "flatten {} }",
               "flatten {} } layer { name: \"c\" conv2d { filters: 2 "
               "kernel_size: 3 } }",
               "'c'", 2},
        BadJob{"missing_file", "digits { count: 500 }",
               "libsvm { path: \"not_there.txt\" feature_count: 2 }",
               "not_there.txt", 3},
        BadJob{"garbage_line", "digits { count: 500 }",
               "libsvm { path: \"weir_bad_garbage_line.libsvm\" "
               "feature_count: 2 }",
               "weir_bad_garbage_line.libsvm:2", 2},
        BadJob{"label_range", "digits { count: 500 }",
               "libsvm { path: \"weir_bad_label_range.label\" "
               "feature_count: 2 }",
               "label", 2},
        BadJob{"learning_rate", "learning_rate: 0.1", "learning_rate: -1",
               "schedule.learning_rate", 2},
        // The rate is so large that the second gradient is not a number.
        BadJob{"nan", "learning_rate: 0.1", "learning_rate: 1e38", "NaN", 3}),
    [](const auto& info) { return info.param.name; });

TEST(BadCheckpointTest, ADamagedOneIsRefusedByNameAndTheOlderTaken) {
  const std::string job = WriteJob(
      "damage", Replace(kJob, "async {}", "sync { contributions: 1 }"));
  const std::string dir = FreshDir("damage");
  // Each run leaves a checkpoint of its last step.
  ASSERT_EQ(RunTrain(dir, {job, "--set", "train.steps=100"}).exit_code, 0);
  ASSERT_EQ(RunTrain(dir, {job, "--resume"}).exit_code, 0);
  const std::string newest = dir + "/checkpoints/ckpt-200";
  const std::string file = newest + "/shard-0-of-1.safetensors";
  const std::string good = ReadFile(file);
  ASSERT_GT(good.size(), 1000u);
  std::string flipped = good;
  flipped[flipped.size() - 100] ^= 4;
  for (const std::string& bad : {flipped, good.substr(0, good.size() - 5)}) {
    WriteFile(file, bad);
    const CommandResult verify = RunWeir({"checkpoint", "verify", newest});
    EXPECT_EQ(verify.exit_code, 4) << verify.output;
    EXPECT_NE(verify.output.find("shard-0-of-1"), std::string::npos)
        << verify.output;
    const TrainRun refused =
        RunTrain(dir, {job, "--resume", "--set", "train.steps=300"}, {}, 60);
    EXPECT_EQ(refused.exit_code, 4) << refused.output;
    EXPECT_NE(refused.output.find("ckpt-200"), std::string::npos)
        << refused.output;
  }
  const TrainRun older = RunTrain(
      dir, {job, "--resume", "--allow_older", "--set", "train.steps=300"}, {},
      60);
  EXPECT_EQ(older.exit_code, 0) << older.output;
  EXPECT_EQ(older.summary["steps"], 300);
  // The first worker has the chief.
  const std::string log = ReadFile(dir + "/logs/worker-0.log");
  EXPECT_NE(log.find("going back to ckpt-100, which loses 100 steps"),
            std::string::npos)
      << log;
}

TEST(BadClusterTest, APortInUseIsNamed) {
  const std::string dir = FreshDir("port");
  HandCluster cluster(dir, kJob, 1, 1, false);
  cluster.Start("ps", 0);
  ASSERT_TRUE(WaitUntil(10, [&] {
    return cluster.task("ps", 0).Log().find("serv") != std::string::npos;
  })) << cluster.task("ps", 0).Log();
  Process first = cluster.Detach("ps", 0);
  Process& second = cluster.Start("ps", 0);
  EXPECT_EQ(second.Wait(10), 2) << second.Log();
  EXPECT_NE(second.Log().find("in use"), std::string::npos) << second.Log();
  EXPECT_TRUE(first.running());
}

TEST(BadClusterTest, OfTwoTasksWithOneIdentityTheOlderEndsAndSaysWhy) {
  HandCluster cluster(FreshDir("twins"),
                      Replace(kJob, "steps: 200", "steps: 20000"), 1, 2, true);
  cluster.StartAll();
  ASSERT_TRUE(WaitUntil(30, [&] { return cluster.step() >= 20; }))
      << cluster.task("chief", 0).Log();
  Process older = cluster.Detach("worker", 1);
  cluster.Start("worker", 1);
  EXPECT_EQ(older.Wait(20), 5) << older.Log();
  EXPECT_NE(older.Log().find("replaced"), std::string::npos) << older.Log();
  EXPECT_TRUE(cluster.task("worker", 1).running())
      << cluster.task("worker", 1).Log();
  EXPECT_TRUE(cluster.task("chief", 0).running())
      << cluster.task("chief", 0).Log();
}

TEST(BadClusterTest, AWorkerWithAnotherJobIsRefusedNamingTheDifference) {
  HandCluster cluster(FreshDir("other_job"),
                      Replace(kJob, "steps: 200", "steps: 200000"), 1, 2, true);
  cluster.StartAll();
  ASSERT_TRUE(WaitUntil(30, [&] { return cluster.step() >= 20; }))
      << cluster.task("chief", 0).Log();
  Process& other = cluster.Start("worker", 1, {"--set", "train.batch_size=20"});
  EXPECT_EQ(other.Wait(20), 2) << other.Log();
  EXPECT_NE(other.Log().find("train.batch_size"), std::string::npos)
      << other.Log();
}

TEST(BadClusterTest, AMalformedTfConfigEndsATaskWithOneLine) {
  const std::string log = FreshDir("tf_config") + "/log";
  Process process({Binary("server/ps/weir_ps")},
                  {"TF_CONFIG={\"cluster\": {\"ps\": 3}}"}, log);
  EXPECT_EQ(process.Wait(10), 2) << process.Log();
  EXPECT_NE(process.Log().find("TF_CONFIG"), std::string::npos)
      << process.Log();
}

}  // namespace
}  // namespace weir
