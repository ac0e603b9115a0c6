#include <algorithm>
#include <string>
#include <vector>

#include "common/base/exit_code.h"
#include "deploy/cli/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/deploy/cli/command_line.h"
#include "worker/compute/check/operation_checks.h"

namespace weir {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

struct Result {
  int code = -1;
  std::string out, error;
};

Result GpuCheck(std::vector<std::string> flags) {
  flags.insert(flags.begin(), "gpu-check");
  const Command command = ReadCommandLine(AddGpuCheckCommand, flags);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Result result;
  result.code = command().value();
  result.out = testing::internal::GetCapturedStdout();
  result.error = testing::internal::GetCapturedStderr();
  return result;
}

TEST(GpuCheckTest, PrintsALinePerOperationAndTheSum) {
  const Result result = GpuCheck(
      {"--device", "cpu", "--small", "--seed", "7", "--precision", "all"});
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_THAT(result.out, StartsWith("device cpu\nseed 7\noperation "));
  for (const OperationCheck& check : OperationChecks()) {
    EXPECT_THAT(result.out, HasSubstr("\n" + check.name + " "));
  }
  EXPECT_THAT(result.out,
              EndsWith("\n" + std::to_string(OperationChecks().size()) +
                       " passed, 0 failed\n"));
}

TEST(GpuCheckTest, DrawsAnotherSeedEachTime) {
  const auto seed = [] {
    const std::string out = GpuCheck({"--device", "cpu", "--small"}).out;
    return out.substr(0, out.find("\noperation"));
  };
  EXPECT_NE(seed(), seed());
}

TEST(GpuCheckTest, SaysInOneLineWhyThereIsNoDevice) {
  const Result result = GpuCheck({"--device", "abacus"});
  EXPECT_EQ(result.code, kExitPermanent);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.error, StartsWith("weir: cannot use abacus"));
  EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1);
}

TEST(GpuCheckTest, RefusesUnknownPrecisionsAndCudnnStates) {
  EXPECT_THROW(GpuCheck({"--precision", "fp8"}), WrongUsage);
  EXPECT_THROW(GpuCheck({"--cudnn", "maybe"}), WrongUsage);
}

}  // namespace
}  // namespace weir
