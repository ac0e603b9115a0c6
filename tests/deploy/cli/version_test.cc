// `weir version` and `weir --version` print the file VERSION.
#include <fstream>
#include <string>

#include "common/base/exit_code.h"
#include "deploy/cli/command.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

std::string FileVersion() {
  std::ifstream file("VERSION");
  std::string line;
  EXPECT_TRUE(std::getline(file, line));
  return line;
}

TEST(VersionTest, TheCommandPrintsTheFile) {
  CLI::App app;
  Command command;
  AddVersionCommand(&app, &command);
  app.parse("version", false);
  testing::internal::CaptureStdout();
  const absl::StatusOr<int> code = command();
  EXPECT_TRUE(code.ok() && *code == kExitOk);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), FileVersion() + "\n");
}

TEST(VersionTest, TheFlagPrintsItWithoutACommand) {
  CLI::App app;
  app.require_subcommand(1);
  Command command;
  AddVersionCommand(&app, &command);
  testing::internal::CaptureStdout();
  try {
    app.parse("--version", false);
    ADD_FAILURE() << "was taken for a command";
  } catch (const CLI::CallForVersion& version) {
    EXPECT_EQ(app.exit(version), 0);
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), FileVersion() + "\n");
}

}  // namespace
}  // namespace weir
