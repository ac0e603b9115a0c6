#include "server/ps/block/block.h"

#include "absl/strings/str_cat.h"

namespace weir {

Block::Block(const BlockPlan* block_plan, uint64_t base_version, int slot_count,
             std::atomic<int64_t>* waits_parked)
    : plan(*block_plan),
      order(absl::StrCat("block ", plan.index), base_version,
            static_cast<size_t>(slot_count)),
      state(block_plan->uses_state.size()),
      steps(block_plan->segments.size(), 0),
      parked(kParkingShares, "a block", waits_parked) {
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
  return {order.version, values, state, steps, order.MarksOfVersion()};
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
