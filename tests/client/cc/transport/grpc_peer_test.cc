#include "client/cc/transport/grpc_peer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "client/cc/transport/call_watch.h"

namespace weir {
namespace {

GrpcPeer* MakePeer() {
  static GrpcPeer* const peer = [] {
    auto* const made = new GrpcPeer;
    made->address = "host:1";
    return made;
  }();
  return peer;
}

TEST(GrpcPeerTest, ErrorsBeginWithTheAddressAndKeepTheirCode) {
  const absl::Status status = MakePeer()->Named(
      grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "replaced"));
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_EQ(std::string(status.message()), "ps host:1: replaced");
  EXPECT_TRUE(MakePeer()->Named(grpc::Status::OK).ok());
}

TEST(GrpcPeerTest, ARefusedConnectionIsSaidInTwoWords) {
  const absl::Status status = MakePeer()->Named(grpc::Status(
      grpc::StatusCode::UNAVAILABLE,
      "failed to connect to all addresses; last error: UNKNOWN: "
      "ipv4:127.0.0.1:1: Failed to connect to remote host: Connection "
      "refused"));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(std::string(status.message()), "ps host:1: connection refused");
}

TEST(GrpcPeerTest, ACallThatTheWatchGaveUpHasAnUnknownOutcome) {
  CallWatch calls;
  grpc::ClientContext context;
  const grpc::Status cancelled(grpc::StatusCode::CANCELLED, "cancelled");
  {
    const CallWatch::Watched watched(&calls, &context, std::chrono::hours(1));
    EXPECT_TRUE(absl::IsCancelled(MakePeer()->Named(cancelled, watched)));
  }
  const CallWatch::Watched watched(&calls, &context,
                                   std::chrono::milliseconds(50));
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!watched.lost() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const absl::Status status = MakePeer()->Named(cancelled, watched);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(std::string(status.message()), "ps host:1: nothing heard in time");
}

TEST(GrpcPeerTest, SeverWithoutAConnectionDoesNothing) {
  MakePeer()->Sever();
  MakePeer()->NoteRemote("ipv4:127.0.0.1:1");
  MakePeer()->Sever();
}

}  // namespace
}  // namespace weir
