// The Transport over gRPC.
//
// Place: implements client/cc/transport/transport.h; the other end is
// server/ps/service/parameter_service.cc. One channel per link.
//
// Methods with payloads run on gRPC's synchronous client streams with raw
// buffers, which measured fastest. A payload that is sent is lent to gRPC; one
// that is received is read where gRPC put it.
//
// Threads, errors: as transport.h. A message begins with "ps <address>: ".
//   UNAVAILABLE comes within 0.1 s when nobody listens at the address; gRPC
//   tries again in the background every 0.1 to 1 s.
// Cost: PushRows and Assign return only when gRPC has let go of every
//   payload, since memory that is still being sent must not change. If a call
//   has failed and its peer takes nothing more, they end the connection.
#ifndef CLIENT_CC_TRANSPORT_GRPC_TRANSPORT_H_
#define CLIENT_CC_TRANSPORT_GRPC_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cc/transport/transport.h"
#include "proto/security/security.h"

namespace weir {

// Whether payloads carry a checksum. kAuto: to and from other hosts only, since
// what stays on this one goes through its memory alone.
enum class ChecksumChoice { kAuto, kOn, kOff };

struct GrpcTransportOptions {
  // Gives every link a connection of its own, in place of one connection per
  // address in the process. It serves several channels to a peer, tests, and
  // links that must not wait for each other.
  bool own_connections = false;
  // Holds for payloads in both directions.
  ChecksumChoice checksum = ChecksumChoice::kAuto;
  // How this process proves who it is, and checks every ps; null: neither.
  std::shared_ptr<const Security> security = nullptr;
};

// "auto", "on" or "off"; INVALID_ARGUMENT otherwise.
absl::StatusOr<ChecksumChoice> ParseChecksumChoice(const std::string& text);

std::unique_ptr<Transport> MakeGrpcTransport(GrpcTransportOptions options = {});

}  // namespace weir

#endif  // CLIENT_CC_TRANSPORT_GRPC_TRANSPORT_H_
