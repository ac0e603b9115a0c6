// `weir version` and `weir --version` print the file VERSION.
#include <fstream>
#include <string>

#include "common/base/exit_code.h"
#include "deploy/cli/command.h"
#include "gtest/gtest.h"
#include "tests/deploy/cli/command_line.h"

namespace weir {
namespace {

std::string FileVersion() {
  std::ifstream file("VERSION");
  std::string line;
  EXPECT_TRUE(std::getline(file, line));
  return line;
}

TEST(VersionTest, TheCommandPrintsTheFile) {
  const Command command = ReadCommandLine(AddVersionCommand, {"version"});
  testing::internal::CaptureStdout();
  const absl::StatusOr<int> code = command();
  EXPECT_TRUE(code.ok() && *code == kExitOk);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), FileVersion() + "\n");
}

TEST(VersionTest, TheFlagPrintsItWithoutACommand) {
  testing::internal::CaptureStdout();
  EXPECT_FALSE(ReadCommandLine(AddVersionCommand, {"--version"}));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), FileVersion() + "\n");
}

}  // namespace
}  // namespace weir
