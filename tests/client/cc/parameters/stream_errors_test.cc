#include "client/cc/parameters/stream_errors.h"

#include <gtest/gtest.h>

#include <string>

namespace weir {
namespace {

TEST(StreamErrorsTest, RepeatsWhatMayBeTheNetworkAndNothingElse) {
  using absl::StatusCode;
  // By number, so that every code of gRPC is in the test: 0 to 16.
  const bool retriable[] = {
      true,   // OK
      true,   // CANCELLED
      true,   // UNKNOWN
      false,  // INVALID_ARGUMENT
      true,   // DEADLINE_EXCEEDED
      false,  // NOT_FOUND
      false,  // ALREADY_EXISTS
      false,  // PERMISSION_DENIED
      true,   // RESOURCE_EXHAUSTED
      false,  // FAILED_PRECONDITION
      false,  // ABORTED
      false,  // OUT_OF_RANGE
      false,  // UNIMPLEMENTED
      false,  // INTERNAL
      true,   // UNAVAILABLE
      false,  // DATA_LOSS
      false,  // UNAUTHENTICATED
  };
  for (int code = 0; code < 17; ++code) {
    EXPECT_EQ(IsRetriable(static_cast<StatusCode>(code)), retriable[code])
        << code;
  }
}

TEST(StreamErrorsTest, WhatANewProcessMendsAsksForOne) {
  const absl::Status skipped =
      ForThisTask(absl::OutOfRangeError("block 3: sequence 7, 5 is next"));
  EXPECT_EQ(skipped.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(skipped.message()),
            "block 3: sequence 7, 5 is next; start this task again: it goes on "
            "where the shards expect it");
  const absl::Status damaged = ForThisTask(absl::DataLossError("checksum"));
  EXPECT_EQ(damaged.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(damaged.message()),
            "checksum, again and again; check the network between the hosts, "
            "then start this task again");
}

TEST(StreamErrorsTest, OtherErrorsStayAsTheyAre) {
  for (const absl::Status& status :
       {absl::PermissionDeniedError("replaced"), absl::InternalError("a bug"),
        absl::UnavailableError("away"), absl::OkStatus()}) {
    EXPECT_EQ(ForThisTask(status), status);
  }
}

}  // namespace
}  // namespace weir
