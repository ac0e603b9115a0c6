// How a job comes to its shards: it declares them, fills them, and takes a slot
// on them.
//
// Place: a program of the SDK without a chief does all of it here, one call
// after another, and so do benchmarks. The chief, which may not wait for a
// shard, decides by start_plan.h and slot_marks.h too, and fills shards by
// AssignShard. Calls are short and many, so that a slow link does not look
// dead, and the caller is asked between them whether to wait on.
//
// Invariants
//   I1. One process takes a generation of a slot, however many try it at once:
//       whoever is first at shard 0 has it, and the others take later ones.
//   I2. Slots are set on one shard after another, in the same order everywhere.
//       So a process that meets a newer generation behind shard 0 was replaced.
// Threads: compatible; several processes may call it at once.
// Errors: PERMISSION_DENIED  a newer process has taken the slot.
//         others             as the calls, with the ps's name.
#ifndef CLIENT_CC_JOB_SHARD_START_H_
#define CLIENT_CC_JOB_SHARD_START_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/transport/transport.h"
#include "common/job/layout.h"
#include "proto/ps.pb.h"

namespace weir {

// One shard of a job that starts, and how it may be called.
struct StartingShard {
  int index = 0;
  ControlLink* link = nullptr;  // borrowed
  std::chrono::milliseconds call_timeout{10000};
  // Called between calls; an error ends the wait. May be empty.
  std::function<absl::Status()> on_wait;

  std::string Name() const;  // "ps 1 (host:port)"
};

// Whoever speaks for the job that `declaration` describes; has no slot yet.
Sender JobSender(const Declaration& declaration, uint64_t layout_fingerprint);

// Declares a shard. A call that ends without an answer (retry_policy.h) is
// repeated until `patience` is over.
absl::Status DeclareShard(const StartingShard& shard,
                          const Declaration& declaration,
                          std::chrono::milliseconds patience);

// The values of a segment: none, if the shard keeps what it has, or
// segment.count. They may lie in `space`, or elsewhere until AssignShard
// returns.
using SegmentValues = std::function<absl::StatusOr<std::span<const float>>(
    const Segment& segment, std::vector<float>* space)>;
// One call carries at most so many bytes, or one block.
inline constexpr size_t kAssignBytesPerCall = size_t{16} << 20;
// A link that carries less counts as dead; it bounds the time of a call.
inline constexpr size_t kLinkBytesPerSecondMin = size_t{32} << 10;
// Assigns the values of all blocks of a shard.
absl::Status AssignShard(const StartingShard& shard, const Layout& layout,
                         const Sender& sender, const SegmentValues& values);

struct TakenSlot {
  uint32_t generation = 0;
  uint64_t next_sequence = 0;  // the smallest mark; nobody else can move it now
  uint64_t capability_high = 0;  // for the Sender
  uint64_t capability_low = 0;
};
// Takes `slot` on every shard for `process`, in `sender`'s job and history.
// REQUIRES: every shard is LOADED or ACTIVE.
absl::StatusOr<TakenSlot> TakeSlot(const std::vector<StartingShard>& shards,
                                   const Sender& sender, uint32_t slot,
                                   uint64_t process);

}  // namespace weir

#endif  // CLIENT_CC_JOB_SHARD_START_H_
