// Synchronous steps: version t + 1 is version t and the mean of n gradients,
// whatever order they came in.
//
// Place: update.sync. Needs nothing from other shards: every shard ends with
// the same set of contributions, because each is a pure function of (version,
// batch).
//
// Terms
//   contribution m  gradient m of step t, 0 <= m < n; keyed by (t, m), not by
//                   who sends it.
//   cursor          contributions 0..cursor-1 are in the sum, or passed.
//   passed          nobody brings it: its slot, m mod W, is retired. It counts
//                   as left out, and the slot's mark moves as if it had come.
//   early           came before its turn; its payload is kept.
//
// Invariants
//   I1. The sum is taken in index order, so its bits depend on the
//       contributions alone.
//   I2. Version t stays readable until the first chunk of step t + 1 reaches
//       the shard: its sender has seen t + 1 everywhere, so nobody needs t. The
//       buffer of t then becomes the sum of t + 1: twice the values in all.
//   I3. Early payloads stay within out_of_order_bytes; over it: DEFERRED. The
//       first contribution that is neither here nor passed is always accepted.
//   I4. Values and slots change only as a version is published, out of place.
//   I5. Contributions are passed only in a step that something else came for:
//       with every slot retired nothing is published. A retired slot's own
//       that are here count. So a slot that retires after its last contribution
//       leaves the same bits whenever the news of it arrives.
//   I6. A slot that comes back is expected from its marks on; they differ by
//       one step at most over all blocks. Where its smallest is behind, that
//       block holds back the next version, so the step's own can still be
//       pulled. The first step may count it on a part of the blocks.
//   I7. A block without optimizer state can be frozen at version t as long as
//       t is readable although it is at t + 1: a checkpoint of t can be written
//       while some blocks are ahead. State of t is not kept: it would be twice
//       in memory.
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
  // The first contribution that is neither here nor passed, or n.
  uint32_t Awaited(const Block& block) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  // Adds contribution number `cursor` and moves the cursor.
  void AddAtCursor(Block& block, const BlockGradient& gradient,
                   const std::vector<bool>& moved)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  // From the cursor on, up to `end`: adds what came early, passes what is
  // retired.
  void AdvanceTo(Block& block, uint32_t end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  // As far as it goes, if the step has begun (I5).
  void AdvanceAndPublish(Block& block, DueList& due)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  void Publish(Block& block, DueList& due)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  // Turns the sum's buffer into the next values.
  void ApplySum(Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

  // See "Push identity" in docs/design_notes.md.
  uint32_t SlotOf(uint32_t gradient) const { return gradient % slots_; }
  uint64_t SequenceOf(const Block& block, uint32_t gradient) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

  const uint32_t contributions_;  // n
  const uint32_t slots_;          // W
};

}  // namespace weir

#endif  // SERVER_PS_CONSISTENCY_SYNC_H_
