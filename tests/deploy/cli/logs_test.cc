// `weir logs` on files that the test writes.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "common/base/exit_code.h"
#include "deploy/cli/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/deploy/cli/command_line.h"

namespace weir {
namespace {

using testing::HasSubstr;

struct Result {
  absl::StatusOr<int> code = 0;
  std::string out;
  std::string err;

  std::string error() const { return std::string(code.status().message()); }
};

// Reads `weir logs FLAGS` and runs it.
Result Logs(std::vector<std::string> flags) {
  flags.insert(flags.begin(), "logs");
  const Command command = ReadCommandLine(AddLogsCommand, flags);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Result result;
  result.code = command();
  result.out = testing::internal::GetCapturedStdout();
  result.err = testing::internal::GetCapturedStderr();
  return result;
}

void Append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

const char kPsText[] =
    "2026-11-21T10:00:01.000Z ps/0 I serving\n"
    "2026-11-21T10:00:04.000Z ps/0 W slow\n"
    "a library's words\n";
const char kWorkerText[] =
    R"({"time":"2026-11-21T10:00:02.000Z","level":"info","task":"worker/0",)"
    R"("module":"worker/train","message":"step 1"})"
    "\n"
    "Traceback\n"
    R"({"time":"2026-11-21T10:00:05.000Z","level":"error","task":"worker/0",)"
    R"("module":"worker/train","message":"lost"})"
    "\n";

// A run of a ps that logs text, and of a worker that logs JSON.
std::string WriteRun() {
  const std::string run = MakeTempDir();
  std::filesystem::create_directory(run + "/logs");
  Append(run + "/logs/ps-0.log", kPsText);
  Append(run + "/logs/worker-0.log", kWorkerText);
  Append(run + "/logs/audit-ps-0.jsonl", "{}\n");
  return run;
}

TEST(LogsTest, TasksAreMergedByTime) {
  const std::string run = WriteRun();
  const Result shown = Logs({run});
  EXPECT_EQ(*shown.code, kExitOk);
  EXPECT_EQ(shown.out,
            "2026-11-21T10:00:01.000Z ps/0 I serving\n"
            "2026-11-21T10:00:02.000Z worker/0 I step 1\n"
            "[worker/0] Traceback\n"
            "2026-11-21T10:00:04.000Z ps/0 W slow\n"
            "[ps/0] a library's words\n"
            "2026-11-21T10:00:05.000Z worker/0 E lost\n");
  EXPECT_EQ(Logs({run + "/logs"}).out, shown.out);
}

TEST(LogsTest, TasksAndLevelsAreChosen) {
  const std::string run = WriteRun();
  EXPECT_EQ(Logs({"--task", "ps/0", run, "--level", "warn"}).out,
            "2026-11-21T10:00:04.000Z ps/0 W slow\n[ps/0] a library's words\n");
  EXPECT_EQ(Logs({run, "--task", "worker", "--level", "error"}).out,
            "2026-11-21T10:00:05.000Z worker/0 E lost\n");
  EXPECT_EQ(Logs({run, "--task", "worker", "--task", "ps"}).out,
            Logs({run}).out);
  const Result none = Logs({run, "--task", "worker/1"});
  EXPECT_EQ(ExitCodeFor(none.code.status()), kExitUsage);
  EXPECT_EQ(none.error(), "--task worker/1: no such task has a log in " + run +
                              "/logs; there are ps/0, worker/0");
  EXPECT_THROW(Logs({run, "--level", "loud"}), WrongUsage);
  EXPECT_THROW(Logs({run, "--output", "xml"}), WrongUsage);
}

TEST(LogsTest, JsonIsOneObjectALine) {
  EXPECT_EQ(Logs({WriteRun(), "--output", "json", "--level", "warn"}).out,
            R"({"time":"2026-11-21T10:00:04.000Z","level":"warn",)"
            R"("task":"ps/0","message":"slow"})"
            "\n"
            R"({"time":"2026-11-21T10:00:04.000Z","level":"warn",)"
            R"("task":"ps/0","message":"a library's words"})"
            "\n"
            R"({"time":"2026-11-21T10:00:05.000Z","level":"error",)"
            R"("task":"worker/0","module":"worker/train","message":"lost"})"
            "\n");
}

TEST(LogsTest, WithoutADirectoryItIsTheRunThatLoggedLast) {
  const std::string here = MakeTempDir();
  std::filesystem::current_path(here);
  const Result none = Logs({});
  EXPECT_EQ(ExitCodeFor(none.code.status()), kExitUsage);
  EXPECT_THAT(none.error(), HasSubstr("no run under runs/ has logs"));
  std::filesystem::create_directories("runs/without");
  const auto now = std::filesystem::file_time_type::clock::now();
  int hours = 0;
  for (const std::string run : {"b", "z", "a"}) {
    std::filesystem::create_directories("runs/" + run + "/logs");
    const std::string path = "runs/" + run + "/logs/ps-0.log";
    Append(path, "of " + run + "\n");
    hours = hours * 7 % 5 + 1;  // ago: 1, 3, 2
    std::filesystem::last_write_time(path, now - std::chrono::hours(hours));
  }
  const Result shown = Logs({});
  EXPECT_EQ(shown.out, "[ps/0] of b\n");
  EXPECT_EQ(shown.err, "weir logs: runs/b\n");
}

TEST(LogsTest, WhatIsNoRunIsWrongUsage) {
  const std::string dir = MakeTempDir();
  for (const std::string& wrong : {dir, dir + "/none"}) {
    const Result result = Logs({wrong});
    EXPECT_EQ(ExitCodeFor(result.code.status()), kExitUsage);
    EXPECT_THAT(result.error(), HasSubstr(wrong));
  }
}

TEST(LogsTest, AFileThatCannotBeReadIsNamedAndHidesNoOther) {
  const std::string run = WriteRun();
  std::filesystem::create_directory(run + "/logs/ps-1.log");
  const Result shown = Logs({run});
  EXPECT_EQ(*shown.code, kExitUsage);
  EXPECT_THAT(shown.err, HasSubstr(run + "/logs/ps-1.log"));
  EXPECT_EQ(std::count(shown.err.begin(), shown.err.end(), '\n'), 1);
  EXPECT_THAT(shown.out, HasSubstr("worker/0 E lost\n"));
}

TEST(LogsTest, AnyBytesAreShown) {
  const std::string run = WriteRun();
  std::string junk;
  for (int i = 0; i < 1 << 20; ++i) {
    junk += static_cast<char>(int64_t{i} * 7919 >> 3);
  }
  Append(run + "/logs/ps-0.log", junk);
  Append(run + "/logs/ps-0.log", std::string(10 << 20, 'x'));
  const Result shown = Logs({run});
  EXPECT_EQ(*shown.code, kExitOk);
  EXPECT_EQ(std::count_if(shown.out.begin(), shown.out.end(),
                          [](char c) {
                            return c != '\n' && static_cast<uint8_t>(c) < 0x20;
                          }),
            0);
  EXPECT_THAT(shown.out, HasSubstr("worker/0 E lost\n"));
}

TEST(LogsTest, AFullOutputIsAnError) {
  const std::string run = WriteRun();
  const int before = dup(STDOUT_FILENO);
  const int full = open("/dev/full", O_WRONLY);
  const Command command = ReadCommandLine(AddLogsCommand, {"logs", run});
  dup2(full, STDOUT_FILENO);
  const absl::StatusOr<int> code = command();
  dup2(before, STDOUT_FILENO);
  close(before);
  close(full);
  EXPECT_THAT(code.status().message(), HasSubstr("standard output"));
}

TEST(LogsTest, FollowingEndsSomeTimeAfterTheRun) {
  const std::string run = WriteRun();
  std::thread tasks([&] {
    Append(run + "/logs/evaluator-0.log",
           "2026-11-21T10:00:06.000Z evaluator/0 I done\n");
    Append(run + "/logs/ps-0.log", "2026-11-21T10:00:07.000Z ps/0 I do");
    Append(run + "/DONE", "ckpt-1\n");
    Append(run + "/logs/ps-0.log", "ne\nno end");
  });
  const Result shown = Logs({run, "--follow"});
  tasks.join();
  EXPECT_EQ(*shown.code, kExitOk);
  for (const char* const line :
       {"ps/0 I serving\n", "worker/0 E lost\n", "evaluator/0 I done\n",
        "ps/0 I done\n", "[ps/0] no end\n"}) {
    EXPECT_THAT(shown.out, HasSubstr(line));
  }
}

TEST(LogsTest, FollowingEndsWithASignal) {
  const std::string run = WriteRun();
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  // It waits until the command listens.
  pthread_sigmask(SIG_BLOCK, &interrupt, nullptr);
  kill(getpid(), SIGINT);
  EXPECT_EQ(*Logs({run, "--follow"}).code, 128 + SIGINT);
}

}  // namespace
}  // namespace weir
