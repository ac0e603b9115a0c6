// The Transport that uses shared memory where client and ps share a host.
//
// Place: around another transport (gRPC), which carries everything but
// PushPull, PullRows and PushRows; the other end is
// server/ps/service/shm_session.h, and proto/wire/shm_message.h the
// specification. Nobody above sees the difference.
//
// A stream asks the ps by Hello where its shared memory is, and connects there
// if both are on one host, in one network namespace, and belong to one user. If
// they do not, or if anything fails, `kAuto` opens a stream of the other
// transport.
//
// Threads, errors: as transport.h.
// Cost: gradients in a buffer of NewBuffer are not copied; others are copied
//   once into shared memory. Values are read where the ps has them. Every
//   stream has a thread that waits for the ps's end.
#ifndef CLIENT_CC_TRANSPORT_SHM_TRANSPORT_H_
#define CLIENT_CC_TRANSPORT_SHM_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cc/transport/grpc_transport.h"
#include "client/cc/transport/transport.h"

namespace weir {

enum class TransportChoice { kAuto, kGrpc, kShm };

// "auto", "grpc" or "shm"; INVALID_ARGUMENT otherwise.
absl::StatusOr<TransportChoice> ParseTransportChoice(const std::string& text);

// gRPC, with or without shared memory as `choice` says. kShm never falls back.
std::unique_ptr<Transport> MakeTransport(TransportChoice choice,
                                         GrpcTransportOptions grpc = {});

// How many streams to a ps are the best on a host of so many processors: one
// for every four, which leaves some to compute with, at most eight. Both sides
// have a thread for each stream, which copies and applies values.
int SharedStreams(unsigned processors);

// Shared memory around any other transport.
std::unique_ptr<Transport> MakeShmTransport(std::unique_ptr<Transport> other,
                                            bool fall_back);

}  // namespace weir

#endif  // CLIENT_CC_TRANSPORT_SHM_TRANSPORT_H_
