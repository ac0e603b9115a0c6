// The launcher's rules: what is started again, what ends the job, and how.
#include "deploy/launcher/supervisor.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

using Pressure = Supervisor::Pressure;

constexpr int64_t kSecond = 1'000'000'000;

LocalTask Task(const std::string& role, int index) {
  LocalTask task;
  task.role = role;
  task.index = index;
  return task;
}

// ps/0, worker/0, worker/1, evaluator/0, all running.
Supervisor Running(int max_restarts = 2) {
  Supervisor::Options options;
  options.max_restarts = max_restarts;
  Supervisor supervisor(options, {Task("ps", 0), Task("worker", 0),
                                  Task("worker", 1), Task("evaluator", 0)});
  EXPECT_EQ(supervisor.TakeStarts(0).size(), 4u);
  return supervisor;
}

TEST(SupervisorTest, RestartsAKilledWorkerLaterEachTime) {
  Supervisor supervisor = Running();
  supervisor.OnExit(2, 137, 0);
  EXPECT_TRUE(supervisor.TakeStarts(kSecond / 20).empty());
  EXPECT_EQ(supervisor.TakeStarts(kSecond / 10), std::vector<int>{2});
  supervisor.OnExit(2, 138, kSecond);
  EXPECT_TRUE(supervisor.TakeStarts(kSecond + kSecond / 10).empty());
  EXPECT_EQ(supervisor.TakeStarts(kSecond + kSecond / 5), std::vector<int>{2});
  EXPECT_EQ(supervisor.tasks()[2].restarts, 2);
  supervisor.OnExit(2, 137, 2 * kSecond);
  EXPECT_TRUE(supervisor.ending());
  EXPECT_EQ(supervisor.exit_code(), 137);
}

TEST(SupervisorTest, NeverRestartsAPsAndEndsWith138) {
  Supervisor supervisor = Running();
  supervisor.OnExit(0, 137, 0);
  EXPECT_EQ(supervisor.exit_code(), 138);
  supervisor.OnExit(1, 138, kSecond);
  EXPECT_TRUE(supervisor.TakeStarts(100 * kSecond).empty());
  EXPECT_FALSE(supervisor.finished());
  EXPECT_EQ(supervisor.PressureAt(10 * kSecond), Pressure::kNone);
  EXPECT_EQ(supervisor.PressureAt(21 * kSecond), Pressure::kTerminate);
  EXPECT_EQ(supervisor.PressureAt(26 * kSecond), Pressure::kKill);
  supervisor.OnExit(2, 138, kSecond);
  EXPECT_EQ(supervisor.PressureAt(kSecond), Pressure::kTerminate);
  supervisor.OnExit(3, 143, 2 * kSecond);
  EXPECT_TRUE(supervisor.finished());
}

TEST(SupervisorTest, EndsWhenWorker0WithoutAChiefIsDone) {
  Supervisor supervisor = Running();
  supervisor.OnExit(2, 0, 0);
  EXPECT_FALSE(supervisor.ending());
  supervisor.OnExit(1, 0, 0);
  EXPECT_TRUE(supervisor.ending());
  EXPECT_EQ(supervisor.exit_code(), 0);
}

TEST(SupervisorTest, APermanentCodeEndsTheJobWithThatCode) {
  Supervisor supervisor = Running();
  supervisor.OnExit(2, 3, 0);
  EXPECT_EQ(supervisor.exit_code(), 3);
  EXPECT_EQ(supervisor.reason(), "worker/1 ended with code 3");
  EXPECT_EQ(supervisor.PressureAt(kSecond), Pressure::kNone);
  EXPECT_EQ(supervisor.PressureAt(3 * kSecond), Pressure::kTerminate);
}

TEST(SupervisorTest, AFailedEvaluatorDoesNotEndTheJob) {
  Supervisor supervisor = Running();
  supervisor.OnExit(3, 2, 0);
  EXPECT_FALSE(supervisor.ending());
}

TEST(SupervisorTest, WaitsForNobodyWhoOnlyWaits) {
  Supervisor supervisor = Running();
  supervisor.OnInterrupt(0);
  supervisor.OnExit(1, 130, kSecond);
  EXPECT_EQ(supervisor.PressureAt(50 * kSecond), Pressure::kNone);
  supervisor.OnExit(2, 138, kSecond);
  // The chief's word is on its way to the ps.
  EXPECT_EQ(supervisor.PressureAt(2 * kSecond), Pressure::kNone);
  EXPECT_EQ(supervisor.PressureAt(4 * kSecond), Pressure::kTerminate);
  supervisor.OnExit(0, 0, kSecond);
  EXPECT_EQ(supervisor.PressureAt(kSecond), Pressure::kTerminate);
  supervisor.OnExit(3, 143, kSecond);
  EXPECT_TRUE(supervisor.finished());
}

TEST(SupervisorTest, LeavesTheEvaluatorTimeAtAGoodEnd) {
  Supervisor supervisor = Running();
  supervisor.OnExit(0, 0, 0);
  supervisor.OnExit(2, 0, 0);
  supervisor.OnExit(1, 0, 0);
  EXPECT_EQ(supervisor.PressureAt(4 * kSecond), Pressure::kNone);
  EXPECT_EQ(supervisor.PressureAt(5 * kSecond), Pressure::kTerminate);
}

TEST(SupervisorTest, ASecondInterruptKillsAtOnce) {
  Supervisor supervisor = Running();
  supervisor.OnInterrupt(0);
  EXPECT_EQ(supervisor.exit_code(), 130);
  EXPECT_EQ(supervisor.PressureAt(kSecond), Pressure::kNone);
  supervisor.OnInterrupt(kSecond);
  EXPECT_EQ(supervisor.PressureAt(kSecond), Pressure::kKill);
}

}  // namespace
}  // namespace weir
