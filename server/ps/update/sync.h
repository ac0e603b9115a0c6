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
//   cursor          contributions 0..cursor-1 are in the sum.
//   early           came before its turn; its payload is kept.
//
// Invariants
//   I1. The sum is taken in index order, so its bits depend on the
//       contributions alone.
//   I2. Version t stays readable until the first chunk of step t + 1 reaches
//       the shard: its sender has seen t + 1 everywhere, so nobody needs t. The
//       buffer of t then becomes the sum of t + 1: twice the values in all.
//   I3. Early payloads stay within out_of_order_bytes; over it: DEFERRED. The
//       contribution at the cursor is always accepted.
//   I4. Values and slots change only as a version is published, out of place.
// Cost: one pass per contribution; three arrays per published block.
#ifndef SERVER_PS_UPDATE_SYNC_H_
#define SERVER_PS_UPDATE_SYNC_H_

#include <optional>
#include <vector>

#include "server/ps/update/update_mode.h"

namespace weir {

class SyncMode : public UpdateMode {
 public:
  explicit SyncMode(ShardContext* context)
      : UpdateMode(context), contributions_(context->plan->contributions()) {}

  absl::StatusOr<Receipt> Push(Block& block, Contribution contribution,
                               DueList& due) override;
  absl::StatusOr<std::optional<PulledBlock>> Answer(
      const Block& block, const Want& want) const override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

 private:
  // Adds contribution number `cursor` and moves the cursor.
  void AddAtCursor(Block& block, const Contribution& contribution,
                   const std::vector<bool>& moved)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  // Adds the early contributions whose turn has come.
  void AddEarly(Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  void Publish(Block& block, DueList& due)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  // Turns the sum's buffer into the next values.
  void ApplySum(Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

  const uint32_t contributions_;  // n
};

}  // namespace weir

#endif  // SERVER_PS_UPDATE_SYNC_H_
