// absl::Status to grpc::Status and back: the codes have the same numbers.
#ifndef PROTO_WIRE_GRPC_STATUS_H_
#define PROTO_WIRE_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace weir {

grpc::Status ToGrpcStatus(const absl::Status& status);

// A code that is not one of gRPC's becomes UNKNOWN. A handshake that failed for
// what the other side is becomes UNAUTHENTICATED: gRPC says UNAVAILABLE, and
// trying again would change nothing.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace weir

#endif  // PROTO_WIRE_GRPC_STATUS_H_
