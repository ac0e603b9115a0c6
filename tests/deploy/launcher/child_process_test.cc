#include "deploy/launcher/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/io/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using testing::HasSubstr;
using testing::Optional;

ChildCommand Shell(const std::string& script, const std::string& log) {
  return {
      .argv = {"/bin/sh", "-c", script}, .environment = {}, .log_path = log};
}

// Asks `end` for the child's end until it has one, for half a minute.
template <typename End>
std::optional<int> WaitFor(const End& end, pid_t pid) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(30);
  std::optional<int> code = end(pid);
  while (!code.has_value() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    code = end(pid);
  }
  return code;
}

// Runs a command to its end and returns its exit code.
std::optional<int> RunToEnd(const ChildCommand& command) {
  const auto pid = StartChild(command);
  EXPECT_TRUE(pid.ok()) << pid.status();
  return pid.ok() ? WaitFor(ReapChild, *pid) : std::nullopt;
}

TEST(ChildProcessTest, AppendsBothStreamsToTheLog) {
  const std::string log = MakeTempDir() + "/log";
  ASSERT_TRUE(Files::Real()->WriteAtomically(log, "before\n").ok());
  EXPECT_THAT(RunToEnd(Shell("echo out; echo err >&2", log)), Optional(0));
  EXPECT_EQ(*Files::Real()->ReadAll(log), "before\nout\nerr\n");
  const std::string fresh = MakeTempDir() + "/log";
  EXPECT_THAT(RunToEnd(Shell("true", fresh)), Optional(0));
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(fresh).permissions(),
            perms::owner_read | perms::owner_write);
}

TEST(ChildProcessTest, TakesTheCallersStreamsInPlaceOfALog) {
  const std::string dir = MakeTempDir();
  const int out = open((dir + "/out").c_str(), O_WRONLY | O_CREAT, 0644);
  const int err = open((dir + "/err").c_str(), O_WRONLY | O_CREAT, 0644);
  ChildCommand command = Shell("echo out; echo err >&2", dir + "/log");
  command.stdout_fd = out;
  command.stderr_fd = err;
  const auto pid = StartChild(command);
  close(out);
  close(err);
  ASSERT_TRUE(pid.ok()) << pid.status();
  EXPECT_THAT(WaitFor(ReapChild, *pid), Optional(0));
  EXPECT_EQ(*Files::Real()->ReadAll(dir + "/out"), "out\n");
  EXPECT_EQ(*Files::Real()->ReadAll(dir + "/err"), "err\n");
  EXPECT_FALSE(std::filesystem::exists(dir + "/log"));
}

// Programs differ in which of two entries they take.
TEST(ChildProcessTest, AVariableOfTheCommandReplacesTheInheritedOne) {
  ::setenv("WEIR_TEST_REPLACED", "ours", 1);
  ::setenv("WEIR_TEST_REPLACED_NOT", "kept", 1);
  const std::string log = MakeTempDir() + "/log";
  ChildCommand command = {.argv = {"/usr/bin/env"},
                          .environment = {"WEIR_TEST_REPLACED=new"},
                          .log_path = log};
  EXPECT_THAT(RunToEnd(command), Optional(0));
  std::vector<std::string> seen;
  for (const auto& line : absl::StrSplit(*Files::Real()->ReadAll(log), '\n')) {
    if (absl::StartsWith(line, "WEIR_TEST_REPLACED")) {
      seen.emplace_back(line);
    }
  }
  EXPECT_THAT(seen,
              testing::UnorderedElementsAre("WEIR_TEST_REPLACED=new",
                                            "WEIR_TEST_REPLACED_NOT=kept"));
}

TEST(ChildProcessTest, ReportsCodesAndSignalsAsAShellDoes) {
  const std::string log = MakeTempDir() + "/log";
  EXPECT_THAT(RunToEnd(Shell("exit 3", log)), Optional(3));
  EXPECT_THAT(RunToEnd(Shell("kill -9 $$", log)), Optional(128 + SIGKILL));
}

TEST(ChildProcessTest, ARunningChildLeadsItsOwnGroupAndHasNoEnd) {
  const auto pid = StartChild(Shell("exec sleep 600", MakeTempDir() + "/log"));
  ASSERT_TRUE(pid.ok()) << pid.status();
  EXPECT_EQ(getpgid(*pid), *pid);
  EXPECT_EQ(ChildEnd(*pid), std::nullopt);
  EXPECT_EQ(ReapChild(*pid), std::nullopt);
  EXPECT_EQ(kill(-*pid, SIGTERM), 0);
  EXPECT_THAT(WaitFor(ReapChild, *pid), Optional(128 + SIGTERM));
}

TEST(ChildProcessTest, ChildEndLeavesTheChildToBeReaped) {
  const std::string log = MakeTempDir() + "/log";
  for (const auto& [script, code] :
       {std::pair("exit 7", 7), std::pair("kill -9 $$", 128 + SIGKILL)}) {
    const auto pid = StartChild(Shell(script, log));
    ASSERT_TRUE(pid.ok()) << pid.status();
    EXPECT_THAT(WaitFor(ChildEnd, *pid), Optional(code));
    EXPECT_THAT(ChildEnd(*pid), Optional(code));
    EXPECT_EQ(kill(*pid, 0), 0) << "the pid is free already";
    EXPECT_THAT(ReapChild(*pid), Optional(code));
    EXPECT_EQ(ChildEnd(*pid), std::nullopt);
  }
}

// The mask of the thread that forks would otherwise stay with the program.
TEST(ChildProcessTest, AChildBlocksNoSignal) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const auto pid = StartChild(Shell("exec sleep 600", MakeTempDir() + "/log"));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(pid.ok()) << pid.status();
  EXPECT_EQ(kill(*pid, SIGTERM), 0);
  EXPECT_THAT(WaitFor(ReapChild, *pid), Optional(128 + SIGTERM));
}

TEST(ChildProcessTest, SaysWhyAChildCannotStart) {
  const std::string dir = MakeTempDir();
  const auto missing = StartChild({.argv = {dir + "/weir_ps"},
                                   .environment = {},
                                   .log_path = dir + "/log"});
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.status().message(),
            dir + "/weir_ps is not there; run ./weir build first");

  const std::string text = dir + "/text";
  ASSERT_TRUE(Files::Real()->WriteAtomically(text, "\x7f no program").ok());
  std::filesystem::permissions(text, std::filesystem::perms::owner_all);
  const auto no_program =
      StartChild({.argv = {text}, .environment = {}, .log_path = dir + "/log"});
  EXPECT_EQ(no_program.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(no_program.status().message()),
              HasSubstr(text + " cannot be run"));

  const auto no_log = StartChild(Shell("exit 0", dir + "/no/log"));
  EXPECT_FALSE(no_log.ok());
  EXPECT_THAT(std::string(no_log.status().message()),
              HasSubstr(dir + "/no/log"));
}

TEST(FreePortTest, GivesEachCallerAnotherPort) {
  std::set<int> ports;
  for (int i = 0; i < 100; ++i) {
    const auto port = FreePort();
    ASSERT_TRUE(port.ok()) << port.status();
    EXPECT_TRUE(ports.insert(*port).second) << *port << " came twice";
    // Outgoing connections get ports from 32768 on.
    EXPECT_GE(*port, 1024);
    EXPECT_LT(*port, 32768);
  }
}

}  // namespace
}  // namespace weir
