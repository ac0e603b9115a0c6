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
  freezing = true;
  while (open_claims > 0) {
    claims_changed.Wait(&mutex);
  }
  freezing = false;
  claims_changed.NotifyAll();
  shared_with_snapshot = true;
  const bool mid_step = step.cursor > 0 || !step.early.empty();
  return {version, values, state, steps, mid_step ? published_marks : marks};
}

int64_t Block::resident_bytes() const {
  int64_t bytes = 0;
  const auto add = [&bytes](const BlockRef& ref) {
    bytes += ref ? static_cast<int64_t>(ref.bytes()) : 0;
  };
  add(values);
  for (const BlockRef& one : state) {
    add(one);
  }
  add(step.sum);
  if (previous.values && previous.values.data() != values.data()) {
    add(previous.values);
  }
  return bytes;
}

}  // namespace weir
