#include "proto/wire/grpc_status.h"

#include <atomic>
#include <string>

#include "common/base/limits.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(GrpcStatusTest, EveryCodeGoesThereAndBackWithItsMessage) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code),
                              code == 0 ? "" : "shard 3");
    const grpc::Status wire = ToGrpcStatus(status);
    EXPECT_EQ(static_cast<int>(wire.error_code()), code);
    EXPECT_EQ(wire.error_message(), code == 0 ? "" : "shard 3");
    EXPECT_EQ(FromGrpcStatus(wire), status);
  }
}

TEST(GrpcStatusTest, APeersMessageIsOneLineOfBoundedLength) {
  const grpc::Status wire(grpc::StatusCode::NOT_FOUND, "a\nb\x1b[31m");
  EXPECT_EQ(FromGrpcStatus(wire).message(), "a\\nb\\x1b[31m");
  const grpc::Status longer(grpc::StatusCode::NOT_FOUND,
                            std::string(kPeerMessageBytesMax + 1, 'a'));
  EXPECT_EQ(FromGrpcStatus(longer).message().size(), kPeerMessageBytesMax);
}

TEST(GrpcStatusTest, AfterAnAnswerAFailedHandshakeMayPass) {
  const grpc::Status refused(
      grpc::StatusCode::UNAVAILABLE,
      "failed to connect to all addresses; last error: UNKNOWN: Ssl handshake "
      "failed: SSL_ERROR_SSL: error:0A000086: certificate verify failed");
  const grpc::Status role(grpc::StatusCode::UNAUTHENTICATED, "your role");
  std::atomic<bool> answered{false};
  const absl::Status before = FromGrpcStatus(refused, &answered);
  EXPECT_TRUE(absl::IsUnauthenticated(before)) << before;
  EXPECT_TRUE(absl::IsUnauthenticated(FromGrpcStatus(role, &answered)));
  EXPECT_FALSE(answered);
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK, &answered).ok());
  EXPECT_TRUE(answered);
  const absl::Status after = FromGrpcStatus(refused, &answered);
  EXPECT_TRUE(absl::IsUnavailable(after)) << after;
  EXPECT_EQ(after.message(), before.message());
  // What the peer itself refuses it goes on to refuse.
  EXPECT_TRUE(absl::IsUnauthenticated(FromGrpcStatus(role, &answered)));
}

TEST(GrpcStatusTest, ACodeOfNobodyIsUnknown) {
  const grpc::Status wire(static_cast<grpc::StatusCode>(17), "odd");
  EXPECT_TRUE(absl::IsUnknown(FromGrpcStatus(wire)));
}

}  // namespace
}  // namespace weir
