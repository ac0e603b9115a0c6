#include "server/ps/consistency/lock_free.h"

#include <optional>
#include <vector>

#include "common/base/status.h"
#include "server/ps/block/must_finish.h"

namespace weir {

absl::StatusOr<Receipt> LockFreeMode::Push(Block& block, BlockGradient gradient,
                                           DueList& /*due*/) {
  const std::vector<bool> moved = MovedSegments(block.plan, gradient);
  const int bad_variable = FindNonFinite(block.plan, moved, gradient);
  const bool moves = bad_variable < 0 && AnyMoved(moved);
  std::vector<StepContext> contexts;
  std::optional<BlockArrays> arrays;
  std::optional<MustFinish> update;
  Admission admission;
  {
    MutexLock lock(&block.mutex);
    // I3: Freeze waits for the open claims, so no new one may begin; with
    // pushes coming all the time it would wait for ever.
    while (block.freezing) {
      block.claims_changed.Wait(&block.mutex);
    }
    // I3. The first push after a freeze: no claim is open (Block, I2), so
    // nobody writes to the buffers that are copied here. They are made before
    // the mark is taken, as in AsyncMode.
    BlockWriter writer(context_.arena);
    if (moves && block.shared_with_snapshot) {
      writer.OpenAll(block);
    }
    WEIR_ASSIGN_OR_RETURN(admission,
                          Admit(block, gradient, moves, bad_variable));
    if (!admission.apply) {
      return admission.receipt;
    }
    update.emplace("an update of a block");
    writer.Replace();
    writer.CopyUpTo(block.plan.range.count);
    block.shared_with_snapshot = false;
    // I1: Admit has taken the mark and the version, this takes the steps.
    // Raw pointers from here: the claim keeps the buffers from being replaced.
    contexts = TakeSteps(block, moved, *gradient.push);
    arrays.emplace(block);
    ++block.open_claims;
  }
  // Without the lock, beside other claims: what this may lose is I2's.
  BlockWriter nothing_to_copy(context_.arena);
  ApplyGradient(block.plan, *arrays, moved, contexts, gradient,
                nothing_to_copy);
  MutexLock lock(&block.mutex);
  --block.open_claims;
  block.claims_changed.NotifyAll();
  return admission.receipt;
}

}  // namespace weir
