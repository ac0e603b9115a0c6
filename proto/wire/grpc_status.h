// absl::Status to grpc::Status and back: the codes have the same numbers.
#ifndef PROTO_WIRE_GRPC_STATUS_H_
#define PROTO_WIRE_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <atomic>

#include "absl/status/status.h"

namespace weir {

grpc::Status ToGrpcStatus(const absl::Status& status);

// A code that is not one of gRPC's becomes UNKNOWN. A handshake that failed for
// what the other side is becomes UNAUTHENTICATED: gRPC says UNAVAILABLE, and
// trying again would change nothing.
absl::Status FromGrpcStatus(const grpc::Status& status);

// The same for a call to a peer that may have proven before who it is. Once
// `answered`, a handshake that fails stays UNAVAILABLE: somebody else has the
// peer's address until the name stands for the right one again, or a
// certificate was renewed by a clock that is ahead, and both pass. Sets
// `answered` where `status` is OK.
absl::Status FromGrpcStatus(const grpc::Status& status,
                            std::atomic<bool>* answered);

}  // namespace weir

#endif  // PROTO_WIRE_GRPC_STATUS_H_
