#include "proto/wire/grpc_status.h"

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

TEST(GrpcStatusTest, ACodeOfNobodyIsUnknown) {
  const grpc::Status wire(static_cast<grpc::StatusCode>(17), "odd");
  EXPECT_TRUE(absl::IsUnknown(FromGrpcStatus(wire)));
}

}  // namespace
}  // namespace weir
