#include "common/base/exit_code.h"

#include <utility>

#include "gtest/gtest.h"

namespace weir {
namespace {

absl::Status Of(absl::StatusCode code) { return absl::Status(code, "x"); }

TEST(ExitCodeTest, EveryStatusCodeHasItsExitCode) {
  using absl::StatusCode;
  const std::pair<StatusCode, int> want[] = {
      {StatusCode::kOk, 0},
      {StatusCode::kCancelled, 138},
      {StatusCode::kUnknown, 1},
      {StatusCode::kInvalidArgument, 2},
      {StatusCode::kDeadlineExceeded, 138},
      {StatusCode::kNotFound, 3},
      {StatusCode::kAlreadyExists, 3},
      {StatusCode::kPermissionDenied, 5},
      {StatusCode::kResourceExhausted, 138},
      {StatusCode::kFailedPrecondition, 138},
      {StatusCode::kAborted, 138},
      {StatusCode::kOutOfRange, 3},
      {StatusCode::kUnimplemented, 3},
      {StatusCode::kInternal, 1},
      {StatusCode::kUnavailable, 138},
      {StatusCode::kDataLoss, 4},
      {StatusCode::kUnauthenticated, 6},
  };
  for (const auto& [code, exit_code] : want) {
    EXPECT_EQ(ExitCodeFor(Of(code)), exit_code)
        << absl::StatusCodeToString(code);
  }
}

// Operators restart on 128 and above, so only what another start may cure has
// such a code.
TEST(ExitCodeTest, OnlyTransientErrorsAskForAnotherStart) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status = Of(static_cast<absl::StatusCode>(code));
    const bool transient = absl::IsUnavailable(status) ||
                           absl::IsDeadlineExceeded(status) ||
                           absl::IsFailedPrecondition(status) ||
                           absl::IsResourceExhausted(status) ||
                           absl::IsCancelled(status) || absl::IsAborted(status);
    EXPECT_EQ(ExitCodeFor(status) >= 128, transient) << status;
  }
}

}  // namespace
}  // namespace weir
