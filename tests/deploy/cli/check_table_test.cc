#include "deploy/cli/check_table.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

TEST(CheckTableTest, ShowsTheResultNearestToItsBound) {
  const std::vector<CheckResult> results = {
      {"conv2d", "1x1", 1e-3, 2e-2, "dx", true},
      {"conv2d", "1x1", 9e-6, 1e-5, "dbias", true},
      {"conv2d", "2x2", 0.0, 0.0, "y", true}};
  EXPECT_TRUE(AllOk(results));
  EXPECT_THAT(CheckTableLine(results, "bf16", 7),
              MatchesRegex("conv2d +bf16 +2 +9.0e-06 +1e-05  ok\n"));
}

TEST(CheckTableTest, NamesTheFirstFailureAndItsSeed) {
  const std::vector<CheckResult> results = {
      {"add", "1", 0.0, 0.0, "y", true},
      {"add", "7", 0.25, 0.0, "y: element 3 is 1, not 2", false},
      {"add", "9", 1.0, 0.0, "written outside", false}};
  EXPECT_FALSE(AllOk(results));
  const std::string line = CheckTableLine(results, "fp32", 7);
  EXPECT_THAT(line, HasSubstr("2.5e-01    exact  FAILED at 7, y: element 3 is "
                              "1, not 2; repeat with --seed 7\n"));
}

TEST(CheckTableTest, ShowsNanRatherThanASmallError) {
  const std::vector<CheckResult> results = {
      {"tanh", "1", 1e-7, 1e-5, "y", true},
      {"tanh", "7", std::nan(""), 1e-5, "y", false}};
  EXPECT_THAT(CheckTableLine(results, "fp32", 7), HasSubstr(" nan "));
}

TEST(CheckTableTest, ExactResultsSaySo) {
  EXPECT_THAT(CheckTableLine({{"add", "1", 0.0, 0.0, "y", true}}, "fp32", 7),
              MatchesRegex("add +fp32 +1 +0.0e\\+00 +exact  ok\n"));
}

}  // namespace
}  // namespace weir
