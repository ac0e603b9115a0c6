// The first calls of a program of the SDK: makes shards, fills them, takes a
// slot.
//
// Place: sdk_session.cc calls it; without a chief it does what a chief does at
// its start. Calls are short and many, so that a slow link is no dead one and
// the caller is asked between them whether to wait on.
//
// Invariants
//   I1. A generation of a slot is taken by one process, however many try it at
//       once: whoever is first at shard 0 has it, the others take later ones.
//   I2. Slots are set on shard after shard in the same order everywhere, so who
//       meets a newer generation behind shard 0 was replaced.
// Threads: compatible; several processes at once.
// Errors: PERMISSION_DENIED  a newer process has taken the slot.
//         and those of the calls, with the ps's name.
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
  const std::vector<std::unique_ptr<ShardLink>>* links = nullptr;  // borrowed
  std::vector<std::string> names;  // of the ps, for errors
  std::chrono::milliseconds call_timeout{10000};
  // Asked between calls; an error ends the wait.
  std::function<absl::Status()> on_wait;
};

// Whether worker 0 has to make the shards, from what every one says of itself.
// False: they are in training, or a process that died left them just before.
// FAILED_PRECONDITION when some are in training and others have lost theirs.
absl::StatusOr<bool> MustMakeShards(const std::vector<HelloReply>& hellos);

// Declares shard `s`; again while it is at work and `patience` is not over.
absl::Status DeclareShard(const StartCalls& calls, size_t s,
                          const Declaration& declaration,
                          std::chrono::milliseconds patience);

struct AssignPiece {
  AssignChunk header;
  std::span<const char> bytes;  // borrowed
};
// One call's share of the pieces of a shard, and how long it may take: a link
// is dead when it carries less than kLinkBytesPerSecondMin.
inline constexpr size_t kAssignBytesPerCall = size_t{16} << 20;
inline constexpr size_t kLinkBytesPerSecondMin = size_t{32} << 10;
absl::Status AssignPieces(const StartCalls& calls, size_t s,
                          const std::vector<AssignPiece>& pieces);

struct TakenSlot {
  uint32_t generation = 0;
  uint64_t next_sequence = 0;  // the smallest mark once nobody else can move it
};
// Takes `slot` on every shard for `process`, as `sender`'s job and history.
// REQUIRES: every shard is LOADED or ACTIVE.
absl::StatusOr<TakenSlot> TakeSlot(const StartCalls& calls,
                                   const Sender& sender, uint32_t slot,
                                   uint64_t process);

}  // namespace weir::sdk

#endif  // CLIENT_CC_SDK_START_H_
