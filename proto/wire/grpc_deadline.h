// Deadlines for gRPC that do not move with the wall clock.
//
// gRPC counts deadlines on the monotonic clock. It converts a deadline that is
// given as a wall-clock time, and a step of the wall clock between the two
// readings would make the deadline too early or too late by that step.
//
// Threads: safe.
#ifndef PROTO_WIRE_GRPC_DEADLINE_H_
#define PROTO_WIRE_GRPC_DEADLINE_H_

#include <grpc/support/time.h>

#include <chrono>

namespace weir {

// The point `timeout` from now, for ClientContext::set_deadline,
// Server::Shutdown and Channel::WaitForStateChange.
gpr_timespec DeadlineAfter(std::chrono::nanoseconds timeout);

}  // namespace weir

#endif  // PROTO_WIRE_GRPC_DEADLINE_H_
