// Runs of small shell scripts, with a ps that only sleeps. The real ps, chief
// and programs of the SDK are in tests/integration/run_test.cc.
#include "deploy/launcher/run.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/io/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using testing::HasSubstr;

// Returns a folder of binaries whose ps sleeps until it is told to end.
std::string MakeBinaries() {
  const std::string dir = MakeTempDir();
  const std::string ps = dir + "/server/ps/weir_ps";
  EXPECT_TRUE(Files::Real()->MakeDirectories(dir + "/server/ps").ok());
  EXPECT_TRUE(
      Files::Real()->WriteAtomically(ps, "#!/bin/sh\nexec sleep 600\n").ok());
  std::filesystem::permissions(ps, std::filesystem::perms::owner_all);
  return dir;
}

RunOptions Script(const std::string& script) {
  RunOptions options;
  options.command = {"/bin/sh", "-c", script};
  return options;
}

TEST(RunTest, EndsWellWhenEveryWorkerDoes) {
  RunOptions options =
      Script("test -n \"$TF_CONFIG\" && test \"$WEIR_TRANSPORT\" = shm");
  options.bin_dir = MakeBinaries();
  options.transport = "shm";
  options.worker_count = 2;
  const auto code = RunCommand(options);
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(*code, 0);
}

TEST(RunTest, EndsWithTheFirstFailuresCode) {
  RunOptions options = Script("exit 7");
  options.bin_dir = MakeBinaries();
  const auto code = RunCommand(options);
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(*code, 7);
}

TEST(RunTest, StartsAWorkerThatASignalEndedAgain) {
  const std::string mark = MakeTempDir() + "/mark";
  RunOptions options =
      Script("test -e " + mark + " && exit 0; : >" + mark + "; kill -9 $$");
  options.bin_dir = MakeBinaries();
  const auto code = RunCommand(options);
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(*code, 0);

  std::filesystem::remove(mark);
  options.max_restarts = 0;
  const auto failed = RunCommand(options);
  ASSERT_TRUE(failed.ok()) << failed.status();
  EXPECT_EQ(*failed, 137);
}

TEST(RunTest, AMissingProgramOfWeirStopsItBeforeAWorkerRuns) {
  const std::string dir = MakeTempDir();
  RunOptions options = Script(": >" + dir + "/ran");
  options.bin_dir = dir;
  const auto code = RunCommand(options);
  EXPECT_EQ(code.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(code.status().message()),
              HasSubstr("/server/ps/weir_ps is not there"));
  EXPECT_FALSE(std::filesystem::exists(dir + "/ran"));
}

TEST(RunTest, EveryWrongOptionIsRefusedAndLeavesNothingBehind) {
  const std::string dir = MakeTempDir();
  std::vector<std::pair<RunOptions, std::string>> cases;
  const auto add = [&](const std::string& want) {
    cases.emplace_back(Script("exit 0"), want);
    cases.back().first.workdir = dir + "/w";
    return &cases.back().first;
  };
  add("there is no command")->command = {};
  add("--workers 0: each must be at least 1")->worker_count = 0;
  add("--ps 0 ")->ps_count = 0;
  add("--resume is the chief's")->resume = true;
  add("--keep=3 is the chief's")->chief_flags = {"--keep=3"};
  add("'no_such_program' is not found in PATH")->command = {"no_such_program"};
  add("--evaluator: ")->evaluator = "python 'open";
  add("--evaluator: ")->evaluator = "no_such_program";
  RunOptions* const resumed = add("there is no run in " + dir + "/w");
  resumed->resume = true;
  resumed->chief = true;
  for (const auto& [options, want] : cases) {
    const auto code = RunCommand(options);
    EXPECT_EQ(code.status().code(), absl::StatusCode::kInvalidArgument) << want;
    EXPECT_THAT(std::string(code.status().message()), HasSubstr(want));
    EXPECT_FALSE(std::filesystem::exists(dir + "/w")) << want;
  }
}

TEST(RunTest, AChiefDoesNotWriteOverAnEarlierRun) {
  const std::string dir = MakeTempDir();
  ASSERT_TRUE(Files::Real()->WriteAtomically(dir + "/train.jsonl", "x").ok());
  RunOptions options = Script("exit 0");
  options.chief = true;
  options.workdir = dir;
  const auto code = RunCommand(options);
  EXPECT_EQ(code.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(code.status().message()),
              HasSubstr("holds an earlier run"));
  EXPECT_EQ(*Files::Real()->ReadAll(dir + "/train.jsonl"), "x");
}

}  // namespace
}  // namespace weir
