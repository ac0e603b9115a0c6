#include "deploy/cli/bin_dir.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using testing::StartsWith;

TEST(BinDirTest, TheEnvironmentNamesIt) {
  ::setenv("WEIR_BIN_DIR", "/some/bin", 1);
  EXPECT_EQ(BinDir(), "/some/bin");
}

// A program is in a folder of two levels, as deploy/cli/weir_cli is.
TEST(BinDirTest, IsThreeLevelsAboveThisProgramOtherwise) {
  ::unsetenv("WEIR_BIN_DIR");
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  ASSERT_THAT(self, StartsWith(BinDir() + "/"));
  const std::string rest = self.substr(BinDir().size() + 1);
  EXPECT_EQ(std::count(rest.begin(), rest.end(), '/'), 2) << rest;
}

// As in a build: the program is in deploy/cli/ of the tree.
TEST(BinDirTest, IsAboveAProgramInItsFolder) {
  EXPECT_EQ(BinDirOf("/work/bin/deploy/cli/weir_cli"), "/work/bin");
}

// As in a bundle and an image: the program is in the root, and its place in the
// tree is a link.
TEST(BinDirTest, IsBesideAProgramThatItsPlaceLinksTo) {
  const std::string root = MakeTempDir();
  const std::string program = root + "/weir_cli";
  std::ofstream(program) << "program";
  std::filesystem::create_directories(root + "/deploy/cli");
  std::filesystem::create_symlink("../../weir_cli",
                                  root + "/deploy/cli/weir_cli");
  EXPECT_EQ(BinDirOf(program), root);
}

}  // namespace
}  // namespace weir
