#include "client/cc/transport/grpc_peer.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cc/transport/tcp_traffic.h"
#include "common/base/status.h"
#include "proto/wire/grpc_status.h"

namespace weir {

absl::Status GrpcPeer::Named(const grpc::Status& status) const {
  absl::Status result = FromGrpcStatus(status, &answered_);
  if (absl::IsUnavailable(result) &&
      absl::StrContains(result.message(), "Connection refused")) {
    result = absl::UnavailableError("connection refused");
  }
  return Annotate(result, absl::StrCat("ps ", address));
}

absl::Status GrpcPeer::Named(const grpc::Status& status,
                             const CallWatch::Watched& watched) const {
  if (watched.lost()) {
    // The watch cancelled the call. CANCELLED would not tell the caller that
    // the outcome is unknown.
    return absl::DeadlineExceededError(
        absl::StrCat("ps ", address, ": nothing heard in time"));
  }
  return Named(status);
}

void GrpcPeer::NoteRemote(const std::string& remote) const {
  MutexLock lock(&mutex_);
  remote_ = remote;
}

void GrpcPeer::Sever() const {
  std::string remote;
  {
    MutexLock lock(&mutex_);
    remote = remote_;
  }
  SeverTcp(remote);  // many system calls: not under the lock
}

}  // namespace weir
