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
  EXPECT_EQ(supervisor.failed_task(), 0);
  EXPECT_EQ(supervisor.advice(), "start again with --resume");
  EXPECT_EQ(supervisor.PressureOn(2, 10 * kSecond), Pressure::kNone);
  EXPECT_EQ(supervisor.PressureOn(2, 21 * kSecond), Pressure::kTerminate);
  EXPECT_EQ(supervisor.PressureOn(2, 26 * kSecond), Pressure::kKill);
  supervisor.OnExit(2, 138, kSecond);
  EXPECT_EQ(supervisor.PressureOn(3, kSecond), Pressure::kTerminate);
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
  EXPECT_EQ(supervisor.failed_task(), 2);
  EXPECT_EQ(supervisor.PressureOn(1, kSecond), Pressure::kNone);
  EXPECT_EQ(supervisor.PressureOn(1, 3 * kSecond), Pressure::kTerminate);
  EXPECT_EQ(supervisor.PressureOn(0, 3 * kSecond), Pressure::kNone);
}

TEST(SupervisorTest, AReplacedWorkerEndsNobodyElse) {
  Supervisor supervisor = Running();
  supervisor.OnExit(2, 5, 0);
  EXPECT_FALSE(supervisor.ending());
  EXPECT_TRUE(supervisor.TakeStarts(100 * kSecond).empty());
  supervisor.OnExit(1, 0, kSecond);
  EXPECT_TRUE(supervisor.ending());
  EXPECT_EQ(supervisor.exit_code(), 0);
}

TEST(SupervisorTest, AReplacedMainTaskLeavesTheOthersToTheirEnd) {
  Supervisor supervisor = Running();
  supervisor.OnExit(1, 5, 0);
  EXPECT_FALSE(supervisor.ending());
  supervisor.OnExit(0, 0, kSecond);
  EXPECT_FALSE(supervisor.ending());
  supervisor.OnExit(2, 0, kSecond);
  EXPECT_TRUE(supervisor.ending());
  EXPECT_EQ(supervisor.exit_code(), 0);
}

TEST(SupervisorTest, WhereAllAreReplacedTheLauncherIs) {
  Supervisor::Options options;
  Supervisor supervisor(options, {Task("ps", 0), Task("worker", 0)});
  supervisor.TakeStarts(0);
  supervisor.OnExit(1, 5, 0);
  EXPECT_TRUE(supervisor.ending());
  EXPECT_EQ(supervisor.exit_code(), 5);
  EXPECT_EQ(supervisor.failed_task(), 1);
}

TEST(SupervisorTest, AGoodEndOfTheMainTaskIsTheJobs) {
  for (const int lost : {137, 138, 143}) {
    Supervisor supervisor = Running();
    supervisor.OnExit(0, lost, 0);  // the chief wrote DONE just before
    EXPECT_EQ(supervisor.exit_code(), 138);
    supervisor.OnExit(2, 138, kSecond);
    supervisor.OnExit(1, 0, kSecond);
    EXPECT_EQ(supervisor.exit_code(), 0);
    EXPECT_EQ(supervisor.advice(), "");
    EXPECT_EQ(supervisor.failed_task(), -1);
    EXPECT_EQ(supervisor.PressureOn(3, 5 * kSecond), Pressure::kNone);
    EXPECT_EQ(supervisor.PressureOn(3, 6 * kSecond), Pressure::kTerminate);
  }
}

TEST(SupervisorTest, AnInterruptAfterTheLastStepIsNoFailure) {
  Supervisor supervisor = Running();
  supervisor.OnInterrupt(0, 130);
  EXPECT_EQ(supervisor.exit_code(), 130);
  supervisor.OnExit(1, 0, kSecond);
  EXPECT_EQ(supervisor.exit_code(), 0);
  EXPECT_TRUE(supervisor.TakeStops().empty());
}

TEST(SupervisorTest, AFailedEvaluatorDoesNotEndTheJob) {
  Supervisor supervisor = Running();
  supervisor.OnExit(3, 2, 0);
  EXPECT_FALSE(supervisor.ending());
}

TEST(SupervisorTest, WaitsForNobodyWhoOnlyWaits) {
  Supervisor supervisor = Running();
  supervisor.OnInterrupt(0, 130);
  EXPECT_EQ(supervisor.advice(), "go on with --resume");
  supervisor.OnExit(1, 130, kSecond);
  EXPECT_EQ(supervisor.PressureOn(3, 50 * kSecond), Pressure::kNone);
  supervisor.OnExit(2, 138, kSecond);
  // No checkpoint will come for the evaluator.
  EXPECT_EQ(supervisor.PressureOn(3, kSecond), Pressure::kTerminate);
  EXPECT_EQ(supervisor.PressureOn(0, 50 * kSecond), Pressure::kNone);
  supervisor.OnExit(3, 143, 2 * kSecond);
  // The chief's word may be on its way to the ps.
  EXPECT_EQ(supervisor.PressureOn(0, 3 * kSecond), Pressure::kNone);
  EXPECT_EQ(supervisor.PressureOn(0, 4 * kSecond), Pressure::kTerminate);
  EXPECT_EQ(supervisor.PressureOn(0, 9 * kSecond), Pressure::kKill);
  supervisor.OnExit(0, 0, 4 * kSecond);
  EXPECT_TRUE(supervisor.finished());
}

TEST(SupervisorTest, TheUsersSignalGoesToTheHostOfTheChiefFirst) {
  Supervisor supervisor = Running();
  EXPECT_TRUE(supervisor.TakeStops().empty());
  supervisor.OnInterrupt(0, 143);
  EXPECT_EQ(supervisor.exit_code(), 143);
  EXPECT_EQ(supervisor.TakeStops(), std::vector<int>{1});
  EXPECT_TRUE(supervisor.TakeStops().empty());
  supervisor.OnExit(1, 143, kSecond);
  EXPECT_EQ(supervisor.TakeStops(), std::vector<int>{2});
  EXPECT_TRUE(supervisor.TakeStops().empty());
}

TEST(SupervisorTest, LeavesTheEvaluatorTimeAtAGoodEnd) {
  Supervisor supervisor = Running();
  supervisor.OnExit(0, 0, 0);
  supervisor.OnExit(2, 0, 0);
  supervisor.OnExit(1, 0, 0);
  EXPECT_EQ(supervisor.PressureOn(3, 4 * kSecond), Pressure::kNone);
  EXPECT_EQ(supervisor.PressureOn(3, 5 * kSecond), Pressure::kTerminate);
}

TEST(SupervisorTest, ASecondInterruptKillsAtOnce) {
  Supervisor supervisor = Running();
  supervisor.OnInterrupt(0, 130);
  EXPECT_EQ(supervisor.exit_code(), 130);
  EXPECT_EQ(supervisor.PressureOn(1, kSecond), Pressure::kNone);
  supervisor.OnInterrupt(kSecond, 130);
  for (int task = 0; task < 4; ++task) {
    EXPECT_EQ(supervisor.PressureOn(task, kSecond), Pressure::kKill) << task;
  }
}

// ps/0, [chief/0,] worker/0, worker/1, evaluator/0 of weir run.
Supervisor RunningCommands(bool chief, int max_restarts = 2) {
  Supervisor::Options options;
  options.user_commands = true;
  options.max_restarts = max_restarts;
  options.interrupt_grace = std::chrono::seconds(10);
  std::vector<LocalTask> tasks = {Task("ps", 0), Task("worker", 0),
                                  Task("worker", 1), Task("evaluator", 0)};
  if (chief) {
    tasks.push_back(Task("chief", 0));
  }
  Supervisor supervisor(options, tasks);
  EXPECT_EQ(supervisor.TakeStarts(0).size(), tasks.size());
  return supervisor;
}

TEST(UserCommandsTest, EndsOnceEveryWorkerEndedWell) {
  Supervisor supervisor = RunningCommands(false);
  supervisor.OnExit(1, 0, 0);
  EXPECT_FALSE(supervisor.ending());
  supervisor.OnExit(2, 137, 0);  // started again, so not done
  EXPECT_FALSE(supervisor.ending());
  EXPECT_EQ(supervisor.TakeStarts(kSecond), std::vector<int>{2});
  supervisor.OnExit(2, 0, kSecond);
  EXPECT_TRUE(supervisor.ending());
  EXPECT_EQ(supervisor.exit_code(), 0);
  EXPECT_EQ(supervisor.failed_task(), -1);
  // The evaluator has its grace; the ps serves it as long.
  EXPECT_EQ(supervisor.PressureOn(3, 5 * kSecond), Pressure::kNone);
  EXPECT_EQ(supervisor.PressureOn(3, 6 * kSecond), Pressure::kTerminate);
  EXPECT_EQ(supervisor.PressureOn(0, 100 * kSecond), Pressure::kNone);
  supervisor.OnExit(3, 143, 7 * kSecond);
  EXPECT_EQ(supervisor.PressureOn(0, 7 * kSecond), Pressure::kTerminate);
  supervisor.OnExit(0, 143, 7 * kSecond);
  EXPECT_TRUE(supervisor.finished());
  EXPECT_EQ(supervisor.exit_code(), 0);
}

TEST(UserCommandsTest, WaitsForTheChiefAndOnlyThenForTheEvaluator) {
  Supervisor supervisor = RunningCommands(true);
  supervisor.OnExit(1, 0, 0);
  supervisor.OnExit(2, 0, 0);
  EXPECT_EQ(supervisor.PressureOn(4, 59 * kSecond), Pressure::kNone);
  EXPECT_EQ(supervisor.PressureOn(4, 60 * kSecond), Pressure::kTerminate);
  EXPECT_EQ(supervisor.PressureOn(3, 59 * kSecond), Pressure::kNone);
  supervisor.OnExit(4, 0, 30 * kSecond);
  EXPECT_EQ(supervisor.PressureOn(3, 34 * kSecond), Pressure::kNone);
  EXPECT_EQ(supervisor.PressureOn(3, 35 * kSecond), Pressure::kTerminate);
  EXPECT_EQ(supervisor.PressureOn(0, 34 * kSecond), Pressure::kNone);
}

TEST(UserCommandsTest, AChiefThatFailsAtTheEndIsAFailure) {
  Supervisor supervisor = RunningCommands(true);
  supervisor.OnExit(1, 0, 0);
  supervisor.OnExit(2, 0, 0);
  supervisor.OnExit(4, 3, kSecond);
  EXPECT_EQ(supervisor.exit_code(), 3);
  EXPECT_EQ(supervisor.failed_task(), 4);
  EXPECT_EQ(supervisor.PressureOn(3, kSecond), Pressure::kTerminate);
}

TEST(UserCommandsTest, AReplacedChiefEndsNobodyButAProgramsFiveDoes) {
  Supervisor supervisor = RunningCommands(true);
  supervisor.OnExit(4, 5, 0);
  EXPECT_FALSE(supervisor.ending());
  supervisor.OnExit(2, 5, 0);
  EXPECT_EQ(supervisor.exit_code(), 5);
  EXPECT_EQ(supervisor.failed_task(), 2);
}

TEST(UserCommandsTest, ALostChiefIsStartedAgain) {
  Supervisor supervisor = RunningCommands(true);
  supervisor.OnExit(4, 137, 0);
  EXPECT_EQ(supervisor.TakeStarts(kSecond), std::vector<int>{4});
}

TEST(UserCommandsTest, ALostPsEndsTheJobWithItsOwnCode) {
  Supervisor supervisor = RunningCommands(false);
  supervisor.OnExit(0, 137, 0);
  EXPECT_EQ(supervisor.exit_code(), 137);
  EXPECT_EQ(supervisor.failed_task(), 0);
  EXPECT_EQ(supervisor.PressureOn(1, kSecond), Pressure::kNone);
  EXPECT_EQ(supervisor.PressureOn(1, 2 * kSecond), Pressure::kTerminate);
  EXPECT_EQ(supervisor.PressureOn(1, 7 * kSecond), Pressure::kKill);
}

TEST(UserCommandsTest, AFailedWorkerEndsTheOthersInOrder) {
  Supervisor supervisor = RunningCommands(true);
  supervisor.OnExit(2, 1, 0);
  supervisor.OnExit(1, 5, kSecond);
  EXPECT_EQ(supervisor.exit_code(), 1);
  EXPECT_EQ(supervisor.failed_task(), 2);
  EXPECT_EQ(supervisor.PressureOn(4, 2 * kSecond), Pressure::kTerminate);
  EXPECT_EQ(supervisor.PressureOn(4, 21 * kSecond), Pressure::kTerminate);
  EXPECT_EQ(supervisor.PressureOn(4, 22 * kSecond), Pressure::kKill);
  // The chief's checkpoint needs it.
  EXPECT_EQ(supervisor.PressureOn(0, 22 * kSecond), Pressure::kNone);
}

TEST(UserCommandsTest, GivesUpAfterTheLastRestart) {
  Supervisor supervisor = RunningCommands(false, 1);
  supervisor.OnExit(1, 137, 0);
  EXPECT_EQ(supervisor.TakeStarts(kSecond), std::vector<int>{1});
  supervisor.OnExit(1, 139, kSecond);
  EXPECT_EQ(supervisor.exit_code(), 139);
  EXPECT_EQ(supervisor.failed_task(), 1);
}

TEST(UserCommandsTest, WorkersHearTheUsersSignalOnceTheChiefIsGone) {
  Supervisor supervisor = RunningCommands(true);
  supervisor.OnInterrupt(0, 130);
  EXPECT_EQ(supervisor.TakeStops(), std::vector<int>{4});
  EXPECT_TRUE(supervisor.TakeStops().empty());
  supervisor.OnExit(4, 130, kSecond);
  EXPECT_EQ(supervisor.TakeStops(), (std::vector<int>{1, 2}));
  EXPECT_TRUE(supervisor.TakeStops().empty());
}

TEST(UserCommandsTest, AnInterruptLeavesWorkersTheirGrace) {
  Supervisor supervisor = RunningCommands(false);
  supervisor.OnInterrupt(0, 143);
  EXPECT_EQ(supervisor.TakeStops(), (std::vector<int>{1, 2}));
  EXPECT_EQ(supervisor.exit_code(), 143);
  EXPECT_EQ(supervisor.PressureOn(1, 9 * kSecond), Pressure::kNone);
  EXPECT_EQ(supervisor.PressureOn(1, 10 * kSecond), Pressure::kTerminate);
  EXPECT_EQ(supervisor.PressureOn(1, 15 * kSecond), Pressure::kKill);
  supervisor.OnExit(1, 143, kSecond);
  EXPECT_EQ(supervisor.PressureOn(3, kSecond), Pressure::kNone);
  supervisor.OnExit(2, 143, kSecond);
  EXPECT_EQ(supervisor.PressureOn(3, kSecond), Pressure::kTerminate);
  EXPECT_EQ(supervisor.PressureOn(0, kSecond), Pressure::kNone);
  supervisor.OnInterrupt(2 * kSecond, 143);
  EXPECT_EQ(supervisor.PressureOn(0, 2 * kSecond), Pressure::kKill);
}

Supervisor Alone(const std::string& role, int index = 0) {
  Supervisor::Options options;
  options.max_restarts = 2;
  options.alone = true;
  options.healthy_after = std::chrono::seconds(600);
  options.interrupt_grace = std::chrono::seconds(30);
  Supervisor supervisor(options, {Task(role, index)});
  EXPECT_EQ(supervisor.TakeStarts(0).size(), 1u);
  return supervisor;
}

const std::string kRoles[] = {"ps", "chief", "worker", "evaluator"};

TEST(SupervisorTest, StartsATaskThatIsAloneAgainWhateverItsRole) {
  for (const std::string& role : kRoles) {
    for (const int code : {137, 138, 139}) {
      Supervisor supervisor = Alone(role, 1);
      supervisor.OnExit(0, code, kSecond);
      EXPECT_FALSE(supervisor.ending()) << role << " " << code;
      EXPECT_EQ(supervisor.TakeStarts(2 * kSecond), std::vector<int>{0});
      supervisor.OnExit(0, 0, 3 * kSecond);
      EXPECT_TRUE(supervisor.finished()) << role << " " << code;
      EXPECT_EQ(supervisor.exit_code(), 0);
    }
  }
}

TEST(SupervisorTest, ATaskThatIsAloneEndsWithItsPermanentCode) {
  for (const std::string& role : kRoles) {
    for (const int code : {1, 2, 3, 4, 5, 6}) {
      Supervisor supervisor = Alone(role, 1);
      supervisor.OnExit(0, code, kSecond);
      EXPECT_TRUE(supervisor.finished()) << role << " " << code;
      EXPECT_EQ(supervisor.exit_code(), code) << role;
    }
  }
}

TEST(SupervisorTest, GivesUpOnATaskThatIsAloneUnlessItsRunsAreLong) {
  Supervisor supervisor = Alone("worker");
  int64_t now = 0;
  const auto fails_after = [&](int64_t seconds) {
    now += seconds * kSecond;
    supervisor.OnExit(0, 139, now);
    now += 10 * kSecond;
    return !supervisor.TakeStarts(now).empty();
  };
  EXPECT_TRUE(fails_after(1));
  EXPECT_TRUE(fails_after(1));
  EXPECT_TRUE(fails_after(600));
  EXPECT_TRUE(fails_after(1));
  EXPECT_FALSE(fails_after(1));
  EXPECT_EQ(supervisor.exit_code(), 139);
}

TEST(SupervisorTest, ATaskThatIsAloneHasItsGraceHoweverOftenItIsTold) {
  for (const std::string& role : kRoles) {
    Supervisor supervisor = Alone(role, 1);
    supervisor.OnInterrupt(kSecond, 143);
    EXPECT_EQ(supervisor.TakeStops(), std::vector<int>{0}) << role;
    supervisor.OnInterrupt(2 * kSecond, 143);
    EXPECT_TRUE(supervisor.TakeStops().empty());
    EXPECT_EQ(supervisor.PressureOn(0, 30 * kSecond), Pressure::kNone) << role;
    EXPECT_EQ(supervisor.PressureOn(0, 31 * kSecond), Pressure::kTerminate);
    EXPECT_EQ(supervisor.PressureOn(0, 60 * kSecond), Pressure::kKill);
    supervisor.OnExit(0, 138, 60 * kSecond);
    EXPECT_TRUE(supervisor.finished()) << role;
    EXPECT_TRUE(supervisor.TakeStarts(100 * kSecond).empty());
    EXPECT_EQ(supervisor.exit_code(), 138) << role;
  }
}

}  // namespace
}  // namespace weir
