// The last second of a job: whoever dies in it, comes late or comes again,
// every task ends with 0. Each task is a real process.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "tests/integration/exit_oracle.h"
#include "tests/integration/hand_cluster.h"
#include "tests/integration/harness.h"

namespace weir {
namespace {

std::string Job(const std::string& mode,
                const std::string& more = "limits { block_elements: 1024 }") {
  return R"(
name: "end" seed: 3
model {
  layer { name: "flat" flatten {} }
  layer { name: "logits" dense { units: 10 } }
  loss { softmax_cross_entropy {} }
}
data { train { digits { count: 200 } } }
train { batch_size: 16 log_every_steps: 10 steps: 200 }
optimizer { adam {} }
schedule { learning_rate: 0.002 }
update { )" +
         mode + " }\n" + more;
}

constexpr char kAsync[] = "async {}";
constexpr char kSync[] = "sync { contributions: 4 }";
// No evaluator runs, so the chief waits this long for one.
constexpr char kLongWait[] = R"(
evaluation { source { digits { count: 100 stream: 1 } } wait_seconds: 300 }
limits { block_elements: 1024 }
)";

// The same, but the chief waits only as long as it takes to miss a ps.
constexpr char kShortWait[] = R"(
evaluation { source { digits { count: 100 stream: 1 } } wait_seconds: 5 }
limits { block_elements: 1024 lost_after_seconds: 2 }
)";

bool IsDone(const HandCluster& cluster) {
  return std::filesystem::exists(cluster.dir() + "/DONE");
}

class EndTest : public testing::TestWithParam<const char*> {
 protected:
  std::string Dir(const std::string& name) const {
    return FreshDir(name + (GetParam() == kSync ? "_sync" : "_async"));
  }
};

TEST_P(EndTest, AllTasksOfAFinishedJobMayBeStartedAgain) {
  HandCluster cluster(Dir("again"), Job(GetParam()), 2, 2, true);
  cluster.StartAll();
  ASSERT_TRUE(EndsRight(&cluster, 60));
  ASSERT_TRUE(IsDone(cluster));
  const std::string model = ExportModel(cluster.dir(), "ckpt-200");
  cluster.StartAll();
  EXPECT_TRUE(EndsRight(&cluster, 20));
  cluster.StartAll({"--resume"});
  EXPECT_TRUE(EndsRight(&cluster, 20));
  EXPECT_TRUE(ExportModel(cluster.dir(), "ckpt-200") == model);
}

TEST_P(EndTest, AHostedChiefServesTheOthersOfAFinishedJob) {
  HandCluster cluster(Dir("hosted"), Job(GetParam()), 1, 2, false);
  cluster.StartAll();
  ASSERT_TRUE(EndsRight(&cluster, 60));
  cluster.StartAll();
  EXPECT_TRUE(EndsRight(&cluster, 20));
}

TEST_P(EndTest, AChiefKilledBeforeDoneIsFinishedByTheNextOne) {
  HandCluster cluster(Dir("before_done"), Job(GetParam()), 2, 2, true);
  cluster.StartAll();
  cluster.Start("chief", 0, {}, {"WEIR_FAILPOINT=chief.before_done:1"});
  ASSERT_EQ(cluster.task("chief", 0).Wait(60), 128 + SIGKILL);
  ASSERT_FALSE(IsDone(cluster));
  cluster.Start("chief", 0);
  EXPECT_TRUE(EndsRight(&cluster, 30));
  EXPECT_TRUE(IsDone(cluster));
  // The last line is of the last step.
  EXPECT_EQ(cluster.step(), 200u);
}

TEST_P(EndTest, AChiefKilledWhileItWaitsForTheEvaluatorIsFollowed) {
  HandCluster cluster(Dir("waiting"), Job(GetParam(), kLongWait), 2, 2, true);
  cluster.StartAll({"--evaluator_expected"});
  ASSERT_TRUE(WaitUntil(60, [&] { return IsDone(cluster); }));
  cluster.task("chief", 0).Signal(SIGKILL);
  cluster.task("chief", 0).Wait(5);
  cluster.Start("chief", 0, {"--evaluator_expected"});
  EXPECT_TRUE(EndsRight(&cluster, 30));
}

// The workers see DONE in the job's directory.
TEST_P(EndTest, AChiefThatNeverComesBackLeavesWorkersThatEndWell) {
  HandCluster cluster(Dir("no_chief"), Job(GetParam(), kLongWait), 1, 2, true);
  cluster.StartAll({"--evaluator_expected"});
  ASSERT_TRUE(WaitUntil(60, [&] { return IsDone(cluster); }));
  cluster.task("chief", 0).Signal(SIGKILL);
  EXPECT_EQ(cluster.task("worker", 0).Wait(30), 0)
      << cluster.task("worker", 0).Log();
  EXPECT_EQ(cluster.task("worker", 1).Wait(30), 0)
      << cluster.task("worker", 1).Log();
}

TEST_P(EndTest, APsLostAfterDoneSpoilsNothing) {
  HandCluster cluster(Dir("lost_ps"), Job(GetParam(), kShortWait), 2, 2, true);
  cluster.StartAll({"--evaluator_expected"});
  ASSERT_TRUE(WaitUntil(60, [&] { return IsDone(cluster); }));
  cluster.task("ps", 1).Signal(SIGKILL);
  EXPECT_TRUE(EndsRight(&cluster, 40, {.signalled = {"ps/1"}}));
}

TEST_P(EndTest, AWorkerThatSleptThroughTheEndEndsWell) {
  HandCluster cluster(Dir("slept"), Job(GetParam(), kLongWait), 1, 2, true);
  cluster.StartAll({"--evaluator_expected"});
  ASSERT_TRUE(WaitUntil(60, [&] { return IsDone(cluster); }));
  cluster.task("worker", 1).Signal(SIGSTOP);
  cluster.Start("evaluator", 0);
  EXPECT_EQ(cluster.task("chief", 0).Wait(60), 0);
  cluster.task("worker", 1).Signal(SIGCONT);
  EXPECT_TRUE(EndsRight(&cluster, 30));
}

INSTANTIATE_TEST_SUITE_P(Modes, EndTest, testing::Values(kAsync, kSync),
                         [](const auto& info) {
                           return info.param == kSync ? "Sync" : "Async";
                         });

}  // namespace
}  // namespace weir
