// Consistency modes: when a contribution changes a block, and when a pull of
// values or rows may see it.
//
// Place: Shard checks the sender and the request, then asks the job's mode;
// TableGroup asks it when rows may be read. There is one mode for each shard;
// its state is in Block and ShardContext. Which contributions count, and in
// which order, is contribution_order.h's.
// Members: async, lock_free, sync, bounded_staleness.
//
// Invariants (tests/server/ps/consistency/consistency_contract.h)
//   I1. Sequence number i of a slot changes a block at most once, and only
//       after sequence number i - 1 was settled there.
//   I2. An error or DEFERRED changes nothing, nor does a duplicate. In sync a
//       duplicate moves the mark if another slot, or an earlier process, has
//       brought the same contribution. A left-out contribution moves the mark
//       alone (sync: and the cursor).
//   I3. NaN or Inf in a moved segment leaves the whole block out.
// Threads: safe.
// Errors: OUT_OF_RANGE      a sequence number was skipped; the message names
//                           the expected one.
//         INVALID_ARGUMENT  a version or an index in step that cannot be.
//         ABORTED           (CanRead) the wanted version is gone.
#ifndef SERVER_PS_CONSISTENCY_CONSISTENCY_MODE_H_
#define SERVER_PS_CONSISTENCY_CONSISTENCY_MODE_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "server/ps/block/block.h"
#include "server/ps/block/block_update.h"
#include "server/ps/block/shard_context.h"
#include "server/ps/consistency/contribution_order.h"

namespace weir {

// Where a pull finds its values.
enum class Readable : int { kNow, kPrevious };

Receipt MakeReceipt(const ::weir::Push& push, Receipt::Outcome outcome);
// The receipt of a contribution that counts. `bad_variable`: the first one, or
// table, with NaN or Inf, for which all is left out; -1: there is none.
Receipt MakeCountedReceipt(const ::weir::Push& push, int bad_variable);

class ConsistencyMode {
 public:
  virtual ~ConsistencyMode() = default;
  ConsistencyMode(const ConsistencyMode&) = delete;
  ConsistencyMode& operator=(const ConsistencyMode&) = delete;

  // Takes one contribution to one block, and its payload, which the mode may
  // keep. Adds to `due` what the caller must run without a lock.
  virtual absl::StatusOr<Receipt> Push(Block& block, BlockGradient gradient,
                                       DueList& due) = 0;

  // Tells what a pull finds now in a unit that can still show the versions
  // from `oldest` to its own; nullopt when it has to wait.
  virtual absl::StatusOr<std::optional<Readable>> CanRead(
      const UnitMarks& unit, uint64_t oldest, const Want& want) const = 0;

  // Returns what a pull gets now; nullopt when it has to wait.
  absl::StatusOr<std::optional<PulledBlock>> Answer(const Block& block,
                                                    const Want& want) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

  // Takes what ShardContext::slots says now. Called for every block after each
  // SetSlots.
  virtual void SlotsChanged(Block& /*block*/, DueList& /*due*/) {}

  const ContributionOrder& order() const { return order_; }

 protected:
  explicit ConsistencyMode(ShardContext* context);

  ShardContext& context_;

 private:
  const ContributionOrder order_;
};

// The member that the plan asks for. `context` is borrowed.
std::unique_ptr<ConsistencyMode> CreateConsistencyMode(ShardContext* context);

}  // namespace weir

#endif  // SERVER_PS_CONSISTENCY_CONSISTENCY_MODE_H_
