// The first calls of a program of the SDK: they make shards, fill them and take
// a slot.
//
// Place: session_start.cc calls it. In a job without a chief it does what a
// chief does at its start. Calls are short and many, so that a slow link does
// not look dead, and the caller is asked between them whether to wait on.
//
// Invariants
//   I1. One process takes a generation of a slot, however many try it at once:
//       whoever is first at shard 0 has it, and the others take later ones.
//   I2. Slots are set on one shard after another, in the same order everywhere.
//       So a process that meets a newer generation behind shard 0 was replaced.
// Threads: compatible; several processes may call it at once.
// Errors: PERMISSION_DENIED  a newer process has taken the slot.
//         others             as the calls, with the ps's name.
#ifndef CLIENT_CC_SDK_START_H_
#define CLIENT_CC_SDK_START_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/transport/transport.h"
#include "proto/ps.pb.h"

namespace weir::sdk {

struct StartCalls {
  const std::vector<std::unique_ptr<ControlLink>>* links = nullptr;  // borrowed
  std::vector<std::string> names;  // of the ps, for errors
  std::chrono::milliseconds call_timeout{10000};
  // Called between calls; an error ends the wait.
  std::function<absl::Status()> on_wait;
};

// Decides from what every shard says of itself whether worker 0 must make the
// shards. It returns false if one is in training and every other one is, too,
// or holds the tensors of the same history. FAILED_PRECONDITION if some are in
// training and others have lost their tensors.
absl::StatusOr<bool> MustMakeShards(const std::vector<HelloReply>& hellos);

// Declares shard `s`. A call that ends without an answer is repeated until
// `patience` is over.
absl::Status DeclareShard(const StartCalls& calls, size_t s,
                          const Declaration& declaration,
                          std::chrono::milliseconds patience);

struct AssignPiece {
  AssignChunk header;
  std::span<const char> bytes;  // borrowed
};
// At most so many bytes of pieces go in one call.
inline constexpr size_t kAssignBytesPerCall = size_t{16} << 20;
// A link that carries less counts as dead; it bounds the time of a call.
inline constexpr size_t kLinkBytesPerSecondMin = size_t{32} << 10;
// Sends the pieces to shard `s`, in their order.
absl::Status AssignPieces(const StartCalls& calls, size_t s,
                          const std::vector<AssignPiece>& pieces);

struct TakenSlot {
  uint32_t generation = 0;
  uint64_t next_sequence = 0;  // the smallest mark; nobody else can move it now
};
// Takes `slot` on every shard for `process`, in `sender`'s job and history.
// REQUIRES: every shard is LOADED or ACTIVE.
absl::StatusOr<TakenSlot> TakeSlot(const StartCalls& calls,
                                   const Sender& sender, uint32_t slot,
                                   uint64_t process);

}  // namespace weir::sdk

#endif  // CLIENT_CC_SDK_START_H_
