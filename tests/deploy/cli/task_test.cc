// How the command line of `weir task` is read, and what its program gets of it.
// The programs here are scripts; real ones are in
// tests/operators/pods_test.py.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/exit_code.h"
#include "common/io/files.h"
#include "deploy/cli/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/deploy/cli/command_line.h"

namespace weir {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Words = std::vector<std::string>;

// Reads `weir task FLAGS` and runs it, as the task of a cluster of one of each.
absl::StatusOr<int> RunTaskOf(const std::string& role, Words flags) {
  ::setenv("WEIR_CLUSTER", "ps=h:1;chief=h:2;worker=h:3", 1);
  ::setenv("WEIR_TASK_TYPE", role.c_str(), 1);
  ::setenv("WEIR_TASK_INDEX", "0", 1);
  flags.insert(flags.begin(), "task");
  const Command command = ReadCommandLine(
      [&](CLI::App* app, Command* command) {
        AddTaskCommand(app, {}, command);
      },
      flags);
  return command();
}

// The command line that the program of `role` gets of `weir task FLAGS`.
std::string WordsOfProgram(const std::string& role, const std::string& program,
                           const Words& flags) {
  const std::string dir = MakeTempDir();
  const std::string path = dir + "/" + program;
  const std::string folder = std::filesystem::path(path).parent_path();
  EXPECT_TRUE(Files::Real()->MakeDirectories(folder).ok());
  EXPECT_TRUE(
      Files::Real()
          ->WriteAtomically(path, "#!/bin/sh\necho \"$@\" >" + dir + "/words\n")
          .ok());
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  ::setenv("WEIR_BIN_DIR", dir.c_str(), 1);
  const auto code = RunTaskOf(role, flags);
  EXPECT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(code.value_or(1), kExitOk);
  return Files::Real()->ReadAll(dir + "/words").value_or("");
}

TEST(TaskCommandLineTest, GivesTheChiefWhatItsOwnMessagesAskFor) {
  const Words flags = {"--workdir", "/w", "--allow_older", "--allow_unguarded"};
  EXPECT_THAT(WordsOfProgram("chief", "server/chief/weir_chief", flags),
              AllOf(HasSubstr("--resume"), HasSubstr("--allow_older"),
                    HasSubstr("--allow_unguarded")));
  EXPECT_THAT(WordsOfProgram("ps", "server/ps/weir_ps", flags),
              Not(HasSubstr("--allow")));
  EXPECT_THAT(
      WordsOfProgram("chief", "server/chief/weir_chief", {"--workdir", "/w"}),
      Not(HasSubstr("--allow")));
}

TEST(TaskCommandLineTest, RefusesValuesThatCannotBe) {
  const Words cases[] = {{"--port_base", "80"},
                         {"--port_base", "61001"},
                         {"--grace_seconds", "-1"},
                         {"--transport", "tcp"},
                         {"--no_such_flag"}};
  for (const Words& flags : cases) {
    EXPECT_THROW(RunTaskOf("ps", flags).IgnoreError(), WrongUsage)
        << testing::PrintToString(flags);
  }
}

}  // namespace
}  // namespace weir
