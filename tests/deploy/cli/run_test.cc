// How the command line of `weir run` is read; nothing is started here.
#include <string>
#include <vector>

#include "deploy/cli/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/deploy/cli/command_line.h"

namespace weir {
namespace {

using testing::HasSubstr;

using Words = std::vector<std::string>;

// Reads `weir run FLAGS -- WORDS` and runs it. Returns its error.
std::string ErrorOf(Words flags, const Words& words) {
  flags.insert(flags.begin(), "run");
  const Command command = ReadCommandLine(
      [&](CLI::App* app, Command* command) {
        AddRunCommand(app, words, command);
      },
      flags);
  return std::string(command().status().message());
}

TEST(RunCommandLineTest, SaysThatTheDashesAreMissing) {
  EXPECT_EQ(ErrorOf({"--workers", "2", "python", "train.py"}, {}),
            "write -- before the command: weir run --workers 2 -- python ...");
}

TEST(RunCommandLineTest, TheWordsAfterTheDashesAreNotRead) {
  EXPECT_EQ(ErrorOf({}, {"[no,program]", "--workers", "0"}),
            "command '[no,program]' is not found in PATH");
}

TEST(RunCommandLineTest, HandsTheChiefsFlagsOnAsTheyWereWritten) {
  for (const std::string flag :
       {"--keep", "--checkpoint_every_steps", "--checkpoint_every_seconds"}) {
    EXPECT_THAT(ErrorOf({flag, "3"}, {"sh"}),
                HasSubstr(flag + "=3 is the chief's"));
  }
}

TEST(RunCommandLineTest, KnowsWhatTheChiefsMessagesAskFor) {
  for (const std::string flag : {"--allow_older", "--allow_unguarded"}) {
    EXPECT_THAT(ErrorOf({flag}, {"[no,program]"}), HasSubstr("in PATH"));
  }
}

TEST(RunCommandLineTest, RefusesValuesThatCannotBe) {
  const Words cases[] = {
      {"--ps", "0"},        {"--ps", "65"},           {"--workers", "0"},
      {"--workers", "two"}, {"--max_restarts", "-1"}, {"--transport", "tcp"},
      {"--keep", "-1"},     {"--no_such_flag"}};
  for (const Words& flags : cases) {
    EXPECT_THROW(ErrorOf(flags, {"sh"}), WrongUsage) << flags[0];
  }
}

}  // namespace
}  // namespace weir
