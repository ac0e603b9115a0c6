// Who may speak to a shard, and which pushes it takes. These are decisions:
// they change nothing.
//
// Place: Shard asks before it hands a request to its consistency mode or to
// its tables.
//
// Invariants
//   I1. A request of another job, history or layout is refused, and so is one
//       of a generation that was replaced or without its capability.
//   I2. A push that passes names only blocks, variables and groups that exist,
//       and brings only finite hyper-parameters >= 0.
// Threads: safe.
// Errors: FAILED_PRECONDITION  another job, history or layout; or no slot was
//                              set yet.
//         PERMISSION_DENIED    another generation or capability of the slot,
//                              or another chief.
//         INVALID_ARGUMENT     the request is wrong by itself; names the field.
#ifndef SERVER_PS_STORE_SENDER_CHECKS_H_
#define SERVER_PS_STORE_SENDER_CHECKS_H_

#include <atomic>
#include <vector>

#include "absl/status/status.h"
#include "common/io/payload.h"
#include "proto/ps.pb.h"
#include "server/ps/block/shard_context.h"
#include "server/ps/plan/shard_plan.h"

namespace weir {

// OK when `sender` speaks of this job, history and layout.
absl::Status CheckSender(const ShardPlan& plan, const Sender& sender);
// CheckSender for requests that only a chief sends: another history of the
// same job means that another chief made the shard.
absl::Status CheckChief(const ShardPlan& plan, const Sender& sender);

// OK when the slot's generation is the granted one, or 0: a reader.
absl::Status CheckGeneration(const std::vector<SlotState>& slots,
                             const Sender& sender);
// OK when `sender` may push. `active`: the chief has set slots.
absl::Status CheckPusher(const std::vector<SlotState>& slots,
                         const std::atomic<bool>& active, const Sender& sender);

// OK when the chunk's blocks, weight, variables and hyper-parameters can be.
// REQUIRES: the chunk has a `push`. The payload's size is checked later.
absl::Status CheckPush(const ShardPlan& plan, const GradientChunk& chunk,
                       const Payload& payload);

}  // namespace weir

#endif  // SERVER_PS_STORE_SENDER_CHECKS_H_
