#include "deploy/cli/bin_dir.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

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

}  // namespace
}  // namespace weir
