#include "client/cc/transport/retry_policy.h"

#include <gtest/gtest.h>

#include <vector>

namespace weir {
namespace {

using std::chrono::milliseconds;

TEST(RetryPolicyTest, TheTableOfCodesIsThatOfTheDocumentation) {
  // By number, so that every code of gRPC is in the test: 0 to 16.
  const Instruction instructions[] = {
      Instruction::kRepeat,      // OK: a stream that ended in good order
      Instruction::kRepeat,      // CANCELLED
      Instruction::kRepeat,      // UNKNOWN
      Instruction::kEnd,         // INVALID_ARGUMENT
      Instruction::kRepeat,      // DEADLINE_EXCEEDED
      Instruction::kEnd,         // NOT_FOUND
      Instruction::kEnd,         // ALREADY_EXISTS
      Instruction::kEnd,         // PERMISSION_DENIED
      Instruction::kRepeat,      // RESOURCE_EXHAUSTED
      Instruction::kEnd,         // FAILED_PRECONDITION
      Instruction::kEnd,         // ABORTED
      Instruction::kResendOnce,  // OUT_OF_RANGE
      Instruction::kEnd,         // UNIMPLEMENTED
      Instruction::kEnd,         // INTERNAL
      Instruction::kRepeat,      // UNAVAILABLE
      Instruction::kSendAgain,   // DATA_LOSS
      Instruction::kEnd,         // UNAUTHENTICATED
  };
  for (int code = 0; code < 17; ++code) {
    EXPECT_EQ(InstructionOf(static_cast<absl::StatusCode>(code)),
              instructions[code])
        << code;
  }
}

TEST(RetryPolicyTest, PausesDoubleAndBeginAnewWithAnAnswer) {
  RetryPolicy retry(milliseconds(10000));
  std::vector<int64_t> pauses_ms;
  for (int i = 0; i < 7; ++i) {
    EXPECT_TRUE(retry.MayRepeat(absl::UnavailableError("refused"), 0));
    pauses_ms.push_back(retry.pause().count());
  }
  EXPECT_EQ(pauses_ms,
            (std::vector<int64_t>{50, 100, 200, 400, 800, 1000, 1000}));
  EXPECT_EQ(retry.last_error(), absl::UnavailableError("refused"));
  retry.OnAnswer();
  EXPECT_TRUE(retry.last_error().ok());
  EXPECT_TRUE(retry.MayRepeat(absl::UnavailableError("refused"), 0));
  EXPECT_EQ(retry.pause(), milliseconds(50));
}

TEST(RetryPolicyTest, APeerIsAskedSeveralTimesHoweverShortLostAfterIs) {
  RetryPolicy retry(milliseconds(80));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(retry.MayRepeat(absl::UnavailableError("refused"), 0));
    EXPECT_EQ(retry.pause(), milliseconds(10));
  }
}

TEST(RetryPolicyTest, APeerIsLostWhenTriesFailForLostAfter) {
  constexpr int64_t kMs = 1'000'000;
  RetryPolicy retry(milliseconds(500));
  EXPECT_FALSE(retry.lost(700 * kMs));  // nothing has failed
  EXPECT_TRUE(retry.MayRepeat(absl::UnavailableError("refused"), 700 * kMs));
  EXPECT_TRUE(retry.MayRepeat(absl::UnavailableError("refused"), 1000 * kMs));
  EXPECT_FALSE(retry.lost(1199 * kMs));
  EXPECT_TRUE(retry.lost(1200 * kMs));
  retry.OnAnswer();
  EXPECT_FALSE(retry.lost(1200 * kMs));
}

TEST(RetryPolicyTest, ADamagedPayloadIsSentAgainAFewTimesInARow) {
  RetryPolicy retry(milliseconds(10000));
  for (int round = 0; round < 2; ++round) {
    for (int i = 1; i < RetryPolicy::kDamagedMax; ++i) {
      EXPECT_TRUE(retry.MayRepeat(absl::DataLossError("checksum"), 0));
    }
    EXPECT_FALSE(retry.MayRepeat(absl::DataLossError("checksum"), 0));
    retry.OnAnswer();
  }
}

TEST(RetryPolicyTest, WhatANewProcessMendsAsksForOne) {
  EXPECT_EQ(ForThisTask(absl::OutOfRangeError("sequence 7, 5 is next")),
            absl::FailedPreconditionError(
                "sequence 7, 5 is next; start this task again: it goes on "
                "where the shards expect it"));
  EXPECT_EQ(ForThisTask(absl::DataLossError("checksum")),
            absl::FailedPreconditionError(
                "checksum, again and again; check the network between the "
                "hosts, then start this task again"));
  for (const absl::Status& status :
       {absl::PermissionDeniedError("replaced"), absl::InternalError("a bug"),
        absl::UnavailableError("away"), absl::OkStatus()}) {
    EXPECT_EQ(ForThisTask(status), status);
  }
}

TEST(RetryPolicyTest, ErrorsNameThePeerOnceAndSayForHowLong) {
  EXPECT_EQ(NamedPs(1, "host:7", absl::InternalError("ps host:7: a bug")),
            absl::InternalError("ps 1 (host:7) a bug"));
  EXPECT_EQ(LostError(UnreachableFor(milliseconds(1500)),
                      absl::UnavailableError("refused")),
            absl::FailedPreconditionError("unreachable for 1.5 s: refused"));
  EXPECT_EQ(LostError(UnreachableFor(milliseconds(2000)), absl::OkStatus()),
            absl::FailedPreconditionError("unreachable for 2 s"));
}

}  // namespace
}  // namespace weir
