// The loop over small shell scripts. Whole jobs are in run_test.cc,
// train_test.cc and tests/integration.
#include "deploy/launcher/job_run.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "common/io/files.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

void AddTask(const std::string& role, int index, const std::string& script,
             const std::string& log, LocalCluster* plan) {
  LocalTask task;
  task.role = role;
  task.index = index;
  plan->tasks.push_back(task);
  plan->commands.push_back(
      {.argv = {"/bin/sh", "-c", script}, .environment = {}, .log_path = log});
}

JobRun::Options Quiet(std::vector<std::string>* notes) {
  JobRun::Options options;
  options.program = "weir test";
  options.show_output = false;
  options.note = [notes](const std::string& line) { notes->push_back(line); };
  return options;
}

// Waits until `path` is there, as a task makes it.
void WaitForFile(const std::string& path) {
  for (int i = 0; i < 30000 && !std::filesystem::exists(path); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(JobRunTest, TheHostOfTheChiefHearsASignalBeforeTheOtherWorkers) {
  const std::string dir = MakeTempDir();
  LocalCluster plan;
  const std::string loop = "; while :; do sleep 0.02; done";
  AddTask(
      "worker", 0,
      "trap 'sleep 0.3; echo chief; exit 143' TERM; : >" + dir + "/0" + loop,
      dir + "/log", &plan);
  AddTask("worker", 1,
          "trap 'echo worker; exit 143' TERM; : >" + dir + "/1" + loop,
          dir + "/log", &plan);
  std::vector<std::string> notes;
  auto run = JobRun::Create(plan, Quiet(&notes));
  ASSERT_TRUE(run.ok()) << run.status();
  std::thread user([&dir] {
    WaitForFile(dir + "/0");
    WaitForFile(dir + "/1");
    kill(getpid(), SIGTERM);
  });
  const absl::Status status = (*run)->Run();
  user.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ((*run)->exit_code(), 143);
  EXPECT_EQ(*Files::Real()->ReadAll(dir + "/log"), "chief\nworker\n");
  EXPECT_EQ(notes,
            std::vector<std::string>{"weir test: stopping; once more kills"});
}

// `weir train` may read for minutes after that.
TEST(JobRunTest, OnceTheJobIsOverSignalsEndTheLauncher) {
  LocalCluster plan;
  AddTask("worker", 0, "exit 0", MakeTempDir() + "/log", &plan);
  std::vector<std::string> notes;
  auto run = JobRun::Create(plan, Quiet(&notes));
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE((*run)->Run().ok());
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_FALSE(sigismember(&blocked, signal)) << signal;
  }
}

TEST(JobRunTest, AFailureIsNamedWithItsLastLines) {
  const std::string dir = MakeTempDir();
  LocalCluster plan;
  AddTask("worker", 0, "echo bad data; exit 3", dir + "/log", &plan);
  std::vector<std::string> notes;
  auto run = JobRun::Create(plan, Quiet(&notes));
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE((*run)->Run().ok());
  EXPECT_EQ((*run)->exit_code(), 3);
  EXPECT_EQ(notes,
            std::vector<std::string>{"weir test: worker/0 failed with code 3 "
                                     "after 0 s; ending the job"});
  testing::internal::CaptureStderr();
  (*run)->Explain();
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "weir test: worker/0 failed with code 3 after 0 s; its last "
            "lines:\n  bad data\n");
}

TEST(JobRunTest, OnlyTheFirstProcessOfATaskGetsItsFailpoint) {
  const std::string dir = MakeTempDir();
  LocalCluster plan;
  AddTask("worker", 0,
          "echo \"<$WEIR_FAILPOINT>\"; test \"$WEIR_FAILPOINT\" || exit 0; "
          "kill -9 $$",
          dir + "/log", &plan);
  ::setenv("WEIR_FAILPOINT_WORKER_0", "test.a:1", 1);
  std::vector<std::string> notes;
  auto run = JobRun::Create(plan, Quiet(&notes));
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE((*run)->Run().ok());
  ::unsetenv("WEIR_FAILPOINT_WORKER_0");
  EXPECT_EQ((*run)->exit_code(), 0);
  EXPECT_EQ((*run)->tasks()[0].restarts, 1);
  EXPECT_EQ(*Files::Real()->ReadAll(dir + "/log"), "<test.a:1>\n<>\n");
}

// Writes a program that waits for `path`.ready, takes itself away, to
// `path`.away, and is killed. Once it is back it ends well.
void AddVanishingTask(const std::string& path, const std::string& log,
                      LocalCluster* plan) {
  ASSERT_TRUE(Files::Real()
                  ->WriteAtomically(path,
                                    "#!/bin/sh\n"
                                    "test -e $0.again && exit 0\n"
                                    "until test -e $0.ready\n"
                                    "do sleep 0.01; done\n"
                                    ": >$0.again\n"
                                    "mv $0 $0.away\n"
                                    "kill -9 $$\n")
                  .ok());
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  AddTask("worker", static_cast<int>(plan->tasks.size()), "", log, plan);
  plan->commands.back().argv = {path};
}

TEST(JobRunTest, ATaskThatCannotBeStartedAgainEndsTheJobInOrder) {
  const std::string dir = MakeTempDir();
  LocalCluster plan;
  AddTask("worker", 0,
          "trap 'echo saved; exit 143' TERM; : >" + dir +
              "/program.ready; while :; do sleep 0.02; done",
          dir + "/log", &plan);
  AddVanishingTask(dir + "/program", dir + "/other", &plan);
  std::vector<std::string> notes;
  JobRun::Options options = Quiet(&notes);
  options.rules.max_restarts = 1;
  options.rules.failure_grace = std::chrono::seconds(0);
  auto run = JobRun::Create(plan, options);
  ASSERT_TRUE(run.ok()) << run.status();
  const absl::Status status = (*run)->Run();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ((*run)->exit_code(), 138);
  EXPECT_EQ(*Files::Real()->ReadAll(dir + "/log"), "saved\n");
  EXPECT_EQ(notes,
            (std::vector<std::string>{
                "weir test: worker/1 failed with code 137 (signal 9) after 0 "
                "s; it is started again (1 of 1)",
                "weir test: worker/1 cannot be started: " + dir +
                    "/program is not there; run ./weir build first",
                "weir test: worker/1 failed with code 138 after 0 s; ending "
                "the job"}));
}

TEST(JobRunTest, AStartThatFailedIsTriedAgain) {
  const std::string dir = MakeTempDir();
  LocalCluster plan;
  AddVanishingTask(dir + "/program", dir + "/log", &plan);
  ASSERT_TRUE(Files::Real()->WriteAtomically(dir + "/program.ready", "").ok());
  std::vector<std::string> notes;
  JobRun::Options options = Quiet(&notes);
  options.note = [&](const std::string& line) {
    if (line.find("cannot be started") != std::string::npos) {
      std::filesystem::rename(dir + "/program.away", dir + "/program");
    }
  };
  auto run = JobRun::Create(plan, options);
  ASSERT_TRUE(run.ok()) << run.status();
  const absl::Status status = (*run)->Run();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ((*run)->exit_code(), 0);
  EXPECT_EQ((*run)->tasks()[0].restarts, 2);
}

// What the first process of a container does: the child that a task leaves
// behind comes to it, and does not stay a zombie.
TEST(JobRunTest, ATaskThatIsAloneLeavesNoZombies) {
  const std::string dir = MakeTempDir();
  LocalCluster plan;
  AddTask("ps", 0,
          // The helper of a helper, whose parent ends at once.
          "sh -c 'setsid sh -c \"echo \\$\\$ >" + dir + "/pid; exit 0\" &'; " +
              "while ! test -s " + dir + "/pid; do sleep 0.01; done; " +
              "while test -e /proc/$(cat " + dir +
              "/pid); do sleep 0.01; done;" + " : >" + dir + "/reaped",
          dir + "/log", &plan);
  std::vector<std::string> notes;
  JobRun::Options options = Quiet(&notes);
  options.rules.alone = true;
  options.reap_orphans = true;
  auto run = JobRun::Create(plan, options);
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE((*run)->Run().ok());
  EXPECT_EQ((*run)->exit_code(), 0);
  EXPECT_TRUE(std::filesystem::exists(dir + "/reaped"));
}

TEST(JobRunTest, ATaskThatIsAloneIsStartedAgainInPlace) {
  const std::string dir = MakeTempDir();
  LocalCluster plan;
  AddTask(
      "ps", 0,
      "test -e " + dir + "/again && exit 3; : >" + dir + "/again; kill -9 $$",
      dir + "/log", &plan);
  std::vector<std::string> notes;
  JobRun::Options options = Quiet(&notes);
  options.rules.alone = true;
  auto run = JobRun::Create(plan, options);
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE((*run)->Run().ok());
  EXPECT_EQ((*run)->exit_code(), 3);
  EXPECT_EQ(notes, (std::vector<std::string>{
                       "weir test: ps/0 failed with code 137 (signal 9) after "
                       "0 s; it is started again (1 of 20)",
                       "weir test: ps/0 failed with code 3 after 0 s; it is "
                       "not started again"}));
}

// Slurm signals every process of a step: the task's and its launcher's.
TEST(JobRunTest, ATaskThatHeardTheSameSignalFirstDidNotFail) {
  const std::string dir = MakeTempDir();
  LocalCluster plan;
  AddTask("ps", 0,
          "trap 'exit 143' TERM; echo $$ >" + dir + "/new; mv " + dir +
              "/new " + dir + "/pid; while :; do sleep 0.01; done",
          dir + "/log", &plan);
  std::vector<std::string> notes;
  JobRun::Options options = Quiet(&notes);
  options.rules.alone = true;
  // Between two looks at the tasks: the task has ended before the next one.
  options.on_poll = [&dir, signalled = false](int64_t /*now_ns*/) mutable {
    const auto pid = Files::Real()->ReadAll(dir + "/pid");
    if (signalled || !pid.ok()) {
      return;
    }
    signalled = true;
    kill(std::stoi(*pid), SIGTERM);
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, std::stoi(*pid), &info, WEXITED | WNOWAIT), 0);
    kill(getpid(), SIGTERM);
  };
  auto run = JobRun::Create(plan, options);
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE((*run)->Run().ok());
  EXPECT_EQ((*run)->exit_code(), 143);
  EXPECT_EQ((*run)->tasks()[0].restarts, 0);
  EXPECT_EQ(notes, std::vector<std::string>{"weir test: stopping"});
}

}  // namespace
}  // namespace weir
