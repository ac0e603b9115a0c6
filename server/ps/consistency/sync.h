// Synchronous steps: version t + 1 is version t and the mean of n gradients,
// whatever order they came in.
//
// Place: update.sync. The mode needs nothing from other shards: every shard
// ends with the same set of contributions, because each contribution is a pure
// function of (version, batch).
//
// Terms
//   contribution m  gradient m of step t, 0 <= m < n; keyed by (t, m), not by
//                   who sends it.
//   cursor          contributions 0..cursor-1 are in the sum, or passed.
//   passed          nobody will bring contribution m: its slot, m mod W, is
//                   retired. It counts as left out, and the slot's mark moves
//                   as if it had come.
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
//   I5. Contributions are passed only in a step for which something else came:
//       when every slot is retired, nothing is published. Contributions of a
//       retired slot that are already here count. So a slot that retires after
//       its last contribution leaves the same bits whenever the news arrives.
//   I6. A slot that comes back is awaited from its marks on. They differ by one
//       step at most over all blocks. A block where the mark is a step behind
//       holds back the next version, so the version of that step can still be
//       pulled. The first step may count the slot on a part of the blocks.
//   I7. A block without optimizer state can be frozen at version t as long as
//       t is readable, even if the block is at t + 1: a checkpoint of t can be
//       written while some blocks are ahead. The state of version t is not
//       kept, since that would need twice its memory.
// Cost: one pass per contribution; three arrays per published block.
#ifndef SERVER_PS_CONSISTENCY_SYNC_H_
#define SERVER_PS_CONSISTENCY_SYNC_H_

#include <optional>
#include <vector>

#include "server/ps/consistency/consistency_mode.h"

namespace weir {

class SyncMode : public ConsistencyMode {
 public:
  explicit SyncMode(ShardContext* context)
      : ConsistencyMode(context),
        contributions_(context->plan->contributions()),
        slots_(static_cast<uint32_t>(context->plan->slot_count())) {}

  absl::StatusOr<Receipt> Push(Block& block, BlockGradient gradient,
                               DueList& due) override;
  absl::StatusOr<std::optional<PulledBlock>> Answer(
      const Block& block, const Want& want) const override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  void SlotsChanged(Block& block, DueList& due) override;

 private:
  // Returns the first contribution that is neither here nor passed, or n.
  uint32_t Awaited(const Block& block) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  // Adds contribution number `cursor` and moves the cursor.
  void AddAtCursor(Block& block, const BlockGradient& gradient,
                   const std::vector<bool>& moved)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  // Moves the cursor up to `end`, as far as it goes: adds contributions that
  // came early, passes those of retired slots.
  void AdvanceTo(Block& block, uint32_t end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  // Moves the cursor as far as it goes, and publishes the version if that is
  // the end of the step. Does nothing if the step has not begun (I5).
  void AdvanceAndPublish(Block& block, DueList& due)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  void Publish(Block& block, DueList& due)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  // Turns the sum's buffer into the next values.
  void ApplySum(Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

  // See "Push identity" in docs/design_notes.md.
  uint32_t SlotOf(uint32_t contribution) const { return contribution % slots_; }
  uint64_t SequenceOf(const Block& block, uint32_t contribution) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

  const uint32_t contributions_;  // n
  const uint32_t slots_;          // W
};

}  // namespace weir

#endif  // SERVER_PS_CONSISTENCY_SYNC_H_
