// Consistency modes: when a contribution changes a block, and when a pull may
// see it.
//
// Place: Shard checks the sender and the request, then asks the job's mode.
// There is one mode for each shard; its state is in Block and ShardContext.
// Members: async, lock_free, sync, bounded_staleness.
//
// Invariants (tests/server/ps/consistency/consistency_contract.h)
//   I1. Sequence number i of a slot changes a block at most once, and only
//       after sequence number i - 1 was settled there.
//   I2. An error, a duplicate or DEFERRED changes nothing; a left-out
//       contribution moves the mark alone (sync: and the cursor).
//   I3. NaN or Inf in a moved segment leaves the whole block out.
// Threads: safe.
// Errors: OUT_OF_RANGE      a sequence number was skipped; the message names
//                           the expected one.
//         INVALID_ARGUMENT  a version or an index in step that cannot be.
//         ABORTED           (Answer) the wanted version is gone.
#ifndef SERVER_PS_CONSISTENCY_CONSISTENCY_MODE_H_
#define SERVER_PS_CONSISTENCY_CONSISTENCY_MODE_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "server/ps/block/block.h"
#include "server/ps/block/block_update.h"
#include "server/ps/block/shard_context.h"

namespace weir {

class ConsistencyMode {
 public:
  virtual ~ConsistencyMode() = default;
  ConsistencyMode(const ConsistencyMode&) = delete;
  ConsistencyMode& operator=(const ConsistencyMode&) = delete;

  // Takes one contribution to one block, and its payload, which the mode may
  // keep. Adds to `due` what the caller must run without a lock.
  virtual absl::StatusOr<Receipt> Push(Block& block, BlockGradient gradient,
                                       DueList& due) = 0;

  // Returns what a pull gets now; nullopt when it has to wait.
  virtual absl::StatusOr<std::optional<PulledBlock>> Answer(
      const Block& block, const Want& want) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) = 0;

  // Takes what ShardContext::slots says now. Called for every block after each
  // SetSlots.
  virtual void SlotsChanged(Block& /*block*/, DueList& /*due*/) {}

 protected:
  explicit ConsistencyMode(ShardContext* context) : context_(*context) {}

  // Tells whether `gradient` has the next sequence number of its slot. False
  // means that it is a duplicate; a number that was skipped is OUT_OF_RANGE.
  static absl::StatusOr<bool> IsNextSequence(const Block& block,
                                             const BlockGradient& gradient)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  static Receipt MakeReceipt(const BlockGradient& gradient,
                             Receipt::Outcome outcome);
  static PulledBlock Current(const Block& block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) {
    return {block.plan.index, block.version, false, block.values};
  }

  ShardContext& context_;
};

// The member that the plan asks for. `context` is borrowed.
std::unique_ptr<ConsistencyMode> CreateConsistencyMode(ShardContext* context);

}  // namespace weir

#endif  // SERVER_PS_CONSISTENCY_CONSISTENCY_MODE_H_
