#include "server/ps/block/block.h"

namespace weir {

Block::Block(const BlockPlan* block_plan, uint64_t base_version, int slot_count)
    : plan(*block_plan),
      version(base_version),
      state(block_plan->uses_state.size()),
      steps(block_plan->segments.size(), 0),
      marks(slot_count, 0),
      published_marks(slot_count, 0),
      retired(slot_count, false) {
  step.weights.resize(block_plan->segments.size(), 0.0);
}

FrozenBlock Block::Freeze() {
  // I2: a claim writes through raw pointers. While `freezing` is set no new
  // one opens, so the wait lasts as long as one block's arithmetic.
  freezing = true;
  while (open_claims > 0) {
    claims_changed.Wait(&mutex);
  }
  freezing = false;
  claims_changed.NotifyAll();
  // I1: the next lock-free push replaces the buffers that are handed out here.
  // The other modes see that they are not the sole holder.
  shared_with_snapshot = true;
  // Sync, in the middle of a step: marks count contributions that are not in
  // the values yet.
  const bool mid_step = step.cursor > 0 || !step.early.empty();
  if (mid_step) {
    return {version, values, state, steps, published_marks};
  }
  return {version, values, state, steps, marks};
}

int64_t Block::resident_bytes() const {
  int64_t bytes = 0;
  const auto add = [&bytes](const BlockRef& ref) {
    if (ref) {
      bytes += static_cast<int64_t>(ref.bytes());
    }
  };
  add(values);
  for (const BlockRef& one : state) {
    add(one);
  }
  add(step.sum);
  // A step that moved nothing left both versions in one buffer.
  if (previous.values && previous.values.data() != values.data()) {
    add(previous.values);
  }
  return bytes;
}

}  // namespace weir
