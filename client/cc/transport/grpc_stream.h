// The client's ends of PushPull and PullRows over gRPC.
//
// Place: opened by grpc_transport.cc. They run on gRPC's synchronous streams
// with raw buffers, so that payloads are neither copied nor parsed.
//
// Threads, errors: as transport.h. A message begins with "ps <address>: ".
#ifndef CLIENT_CC_TRANSPORT_GRPC_STREAM_H_
#define CLIENT_CC_TRANSPORT_GRPC_STREAM_H_

#include <memory>

#include "client/cc/transport/grpc_peer.h"
#include "client/cc/transport/transport.h"

namespace weir {

std::unique_ptr<PushPullStream> MakeGrpcPushPull(
    std::shared_ptr<const GrpcPeer> peer);
std::unique_ptr<PullRowsStream> MakeGrpcPullRows(
    std::shared_ptr<const GrpcPeer> peer);

}  // namespace weir

#endif  // CLIENT_CC_TRANSPORT_GRPC_STREAM_H_
