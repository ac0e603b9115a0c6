// `weir secret` prints a secret that a job takes.
#include <string>

#include "common/base/exit_code.h"
#include "deploy/cli/command.h"
#include "gtest/gtest.h"
#include "proto/security/job_secret.h"
#include "tests/deploy/cli/command_line.h"

namespace weir {
namespace {

std::string Secret() {
  const Command command = ReadCommandLine(AddSecretCommand, {"secret"});
  testing::internal::CaptureStdout();
  const absl::StatusOr<int> code = command();
  EXPECT_TRUE(code.ok() && *code == kExitOk);
  return testing::internal::GetCapturedStdout();
}

TEST(SecretTest, PrintsAnotherOneEachTime) {
  const std::string first = Secret();
  EXPECT_EQ(first.size(), 65);  // with the end of its line
  EXPECT_TRUE(JobSecret::Parse(first).ok());
  EXPECT_NE(first, Secret());
}

}  // namespace
}  // namespace weir
