// Synchronous steps: version t + 1 is version t and the mean of n gradients,
// whatever order they came in.
//
// Place: update.sync. The mode needs nothing from other shards: every shard
// ends with the same set of contributions, because each contribution is a pure
// function of (version, batch).
//
// Terms (and those of contribution_order.h and unit_order.h)
//   contribution m  gradient m of step t, 0 <= m < n; keyed by (t, m), not by
//                   who sends it.
//   early           the contribution came before its turn; its payload is kept.
//
// Invariants
//   I1. The sum is taken in index order, so its bits depend on the
//       contributions alone.
//   I2. Version t stays readable until the first chunk of step t + 1 reaches
//       the shard: its sender has seen t + 1 everywhere, so nobody needs t. The
//       buffer of t then becomes the sum of t + 1: twice the values in all.
//   I3. Early payloads stay within out_of_order_bytes; over it: DEFERRED. The
//       first contribution that is neither here nor passed is always accepted.
//   I4. Values and optimizer state change only when a version is published,
//       and out of place.
//   I5. Contributions of a retired slot are passed, but no step is made of
//       those alone (ContributionOrder, I4).
//   I6. A slot that comes back is awaited from its marks on. They differ by one
//       step at most over all blocks. A block where the mark is a step behind
//       holds back the next version, so the version of that step can still be
//       pulled. The first step may count the slot on a part of the blocks.
//   I7. A block without optimizer state can be frozen at version t as long as
//       t is readable, even if the block is at t + 1: a checkpoint of t can be
//       written while some blocks are ahead. The state of version t is not
//       kept, since that would need twice its memory.
// Cost: one pass per contribution; three arrays per published block. The only
//   contribution of a step has no pass of its own: the values are moved by it
//   where it lies.
#ifndef SERVER_PS_CONSISTENCY_SYNC_H_
#define SERVER_PS_CONSISTENCY_SYNC_H_

#include <cstdint>
#include <optional>

#include "server/ps/consistency/consistency_mode.h"

namespace weir {

class SyncMode : public ConsistencyMode {
 public:
  explicit SyncMode(ShardContext* context) : ConsistencyMode(context) {}

  absl::StatusOr<Receipt> Push(Block& block, BlockGradient gradient,
                               DueList& due) override;
  absl::StatusOr<std::optional<Readable>> CanRead(
      const UnitMarks& unit, uint64_t oldest, const Want& want) const override;
  void SlotsChanged(Block& block, DueList& due) override;

 private:
  // Makes a buffer for a sum, of undefined contents.
  void MakeSum(Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  // Adds `next`, the one at the cursor, to the sum.
  void AddToSum(Block& block, EarlyGradient next)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  // Adds what has its turn, and publishes the version if that is the end of the
  // step. Returns whether it was.
  bool Advance(Block& block, DueList& due)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  // `alone` is the step's last contribution where nothing was summed before it;
  // else empty.
  void Publish(Block& block, const EarlyGradient& alone, DueList& due)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  // Turns the sum's buffer into the next values.
  void ApplySum(Block& block, const EarlyGradient& alone)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
};

}  // namespace weir

#endif  // SERVER_PS_CONSISTENCY_SYNC_H_
