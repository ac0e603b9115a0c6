// Jobs whose checkpoints' disk is full, fails or hangs for a while, with real
// processes (tests/support/preload_disk.cc).
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <optional>
#include <string>

#include "tests/integration/hand_cluster.h"
#include "tests/integration/harness.h"

namespace weir {
namespace {

constexpr char kPreload[] = "tests/support/preload_disk.so";

std::string Job(int steps, int every) {
  return DigitsJob(steps, "checkpoint { every_steps: " + std::to_string(every) +
                              " } update { async {} }");
}

class DiskTest : public testing::Test {
 protected:
  // A cluster of two ps and two workers of whose directory `part` lies on that
  // disk, which has a fault ("": none) from the start.
  HandCluster& StartJob(const std::string& name, int steps, int every,
                        const std::string& part = "checkpoints",
                        const std::string& how = "") {
    const std::string dir = FreshDir(name);
    fault_ = dir + ".fault";
    Heal();
    if (!how.empty()) {
      Spoil(how);
    }
    cluster_.emplace(dir, Job(steps, every), 2, 2, /*chief=*/true);
    setenv("LD_PRELOAD", Binary(kPreload).c_str(), 1);
    setenv("WEIR_TEST_DISK", (dir + "/" + part).c_str(), 1);
    setenv("WEIR_TEST_DISK_FAULT", fault_.c_str(), 1);
    for (const int i : {0, 1}) {
      cluster_->Start("ps", i);
    }
    cluster_->Start("chief", 0);
    for (const char* variable :
         {"LD_PRELOAD", "WEIR_TEST_DISK", "WEIR_TEST_DISK_FAULT"}) {
      unsetenv(variable);
    }
    for (const int i : {0, 1}) {
      cluster_->Start("worker", i);
    }
    return *cluster_;
  }
  void Spoil(const std::string& how) { WriteFile(fault_, how); }
  void Heal() { std::filesystem::remove(fault_); }
  bool ChiefSays(const std::string& what, double seconds = 120) {
    return WaitUntil(seconds, [&] {
      return cluster_->task("chief", 0).Log().find(what) != std::string::npos;
    });
  }
  void ExpectDone(const std::string& checkpoint) {
    for (const char* role : {"chief", "worker", "ps"}) {
      for (int i = 0; i < (role == std::string("chief") ? 1 : 2); ++i) {
        EXPECT_EQ(cluster_->task(role, i).Wait(60), 0)
            << cluster_->task(role, i).Log();
      }
    }
    const std::string done = ReadFile(cluster_->dir() + "/DONE");
    EXPECT_EQ(done.substr(0, checkpoint.size()), checkpoint);
    const CommandResult verify =
        RunWeir({"checkpoint", "verify",
                 cluster_->dir() + "/checkpoints/" + checkpoint});
    EXPECT_EQ(verify.exit_code, 0) << verify.output;
  }

  std::string fault_;
  std::optional<HandCluster> cluster_;
};

TEST_F(DiskTest, AFullDiskLosesNeitherTheJobNorItsResult) {
  // So many that the disk is full for some of its periodic checkpoints.
  HandCluster& cluster = StartJob("disk_full", 30000, 500);
  ASSERT_TRUE(WaitUntil(60, [&] { return !cluster.checkpoints().empty(); }))
      << cluster.task("chief", 0).Log();
  Spoil("full");
  // A periodic one is left out, training goes on, and the last one waits.
  ASSERT_TRUE(ChiefSays("the job goes on")) << cluster.task("chief", 0).Log();
  ASSERT_TRUE(WaitUntil(120, [&] {  // twice
    const std::string log = cluster.task("chief", 0).Log();
    return log.find("trying again in") != log.rfind("trying again in");
  })) << cluster.task("chief", 0).Log();
  EXPECT_TRUE(ChiefSays("No space left on device"));
  EXPECT_TRUE(ChiefSays("safe in the memory of the ps"));
  for (const char* role : {"chief", "worker", "ps"}) {
    EXPECT_TRUE(cluster.task(role, 0).running()) << role;
  }
  EXPECT_FALSE(cluster.checkpoints().empty());
  Heal();
  ExpectDone("ckpt-30000");
}

TEST_F(DiskTest, ADiskThatFailsAtTheStartIsWorthAnother) {
  HandCluster& cluster =
      StartJob("disk_fails", 2000, 500, "checkpoints", "fail");
  EXPECT_EQ(cluster.task("chief", 0).Wait(60), 138)
      << cluster.task("chief", 0).Log();
  EXPECT_TRUE(ChiefSays("Input/output error"));
  Heal();
  cluster.Start("chief", 0);
  ExpectDone("ckpt-2000");
}

TEST_F(DiskTest, AFullDiskUnderTheCurvesCostsTheirPointsAlone) {
  HandCluster& cluster = StartJob("disk_curves", 10000, 0, "tensorboard");
  ASSERT_TRUE(ChiefSays("training from")) << cluster.task("chief", 0).Log();
  Spoil("full");
  ASSERT_TRUE(ChiefSays("TensorBoard's curves have a gap"))
      << cluster.task("chief", 0).Log();
  EXPECT_TRUE(ChiefSays("No space left on device"));
  ExpectDone("ckpt-10000");
  // Said once, and the file beside it has the whole curve.
  const std::string log = cluster.task("chief", 0).Log();
  const size_t said = log.find("curves have a gap");
  EXPECT_EQ(log.find("curves have a gap", said + 1), std::string::npos);
  const auto lines = ReadJsonLines(cluster.dir() + "/train.jsonl");
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back()["step"], 10000);
}

TEST_F(DiskTest, AShareThatHangsAtTheEndIsWaitedFor) {
  HandCluster& cluster = StartJob("disk_hangs", 10000, 0);
  // By the log, which is there at once; a status tells of a step only when a
  // short job may have ended.
  ASSERT_TRUE(ChiefSays("training from")) << cluster.task("chief", 0).Log();
  Spoil("hang");
  ASSERT_TRUE(ChiefSays("does the disk of the work directory answer?"))
      << cluster.task("chief", 0).Log();
  for (const char* role : {"chief", "worker", "ps"}) {
    EXPECT_TRUE(cluster.task(role, 0).running()) << role;
  }
  Heal();
  ExpectDone("ckpt-10000");
}

}  // namespace
}  // namespace weir
