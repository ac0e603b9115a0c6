#include "server/ps/consistency/bounded_staleness.h"

namespace weir {

absl::StatusOr<std::optional<PulledBlock>> BoundedStalenessMode::Answer(
    const Block& block, const Want& want) const {
  const uint64_t bound = context_.plan->staleness_bound();
  for (size_t w = 0; w < context_.slots.size(); ++w) {
    // I1 holds for the minimum when it holds for every live slot; I2: `live` is
    // false once a slot retires. The first comparison keeps the difference of
    // unsigned numbers from wrapping.
    if (context_.slots[w].live && want.clock() > block.marks[w] &&
        want.clock() - block.marks[w] > bound) {
      return std::nullopt;
    }
  }
  return AsyncMode::Answer(block, want);
}

}  // namespace weir
