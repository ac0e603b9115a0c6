// The things that all gRPC calls to one ps share: its channel, and how their
// errors read.
//
// Place: GrpcTransport makes one for each link; the link and its streams hold
// it (grpc_stream.h).
//
// Threads: safe once the members are set.
#ifndef CLIENT_CC_TRANSPORT_GRPC_PEER_H_
#define CLIENT_CC_TRANSPORT_GRPC_PEER_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/cc/transport/call_watch.h"
#include "common/base/mutex.h"
#include "proto/ps.grpc.pb.h"
#include "proto/security/security.h"

namespace weir {

class GrpcPeer {
 public:
  std::string address;
  // Whose certificates the channel uses, to its end.
  std::shared_ptr<const Security> security;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<ParameterServer::Stub> stub;
  std::shared_ptr<CallWatch> calls;
  bool checksum = false;  // whether payloads carry one

  // Says that a message has come from the ps: from then on a handshake that
  // fails is UNAVAILABLE (proto/wire/grpc_status.h).
  void NoteAnswer() const { answered_ = true; }

  // `status` with the address in front: "ps <address>: ...". A refused
  // connection is said in two words, without gRPC's layers around them. OK is
  // an answer.
  absl::Status Named(const grpc::Status& status) const;
  // How a watched call ended: DEADLINE_EXCEEDED if the watch gave it up.
  absl::Status Named(const grpc::Status& status,
                     const CallWatch::Watched& watched) const;

  // Remembers where the connection goes (grpc::ClientContext::peer()).
  void NoteRemote(const std::string& remote) const;
  // Ends the connections to the place that NoteRemote was told last.
  void Sever() const;

 private:
  mutable std::atomic<bool> answered_{false};
  mutable Mutex mutex_;
  mutable std::string remote_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // CLIENT_CC_TRANSPORT_GRPC_PEER_H_
