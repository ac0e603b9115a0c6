#include "server/ps/consistency/bounded_staleness.h"

namespace weir {

absl::StatusOr<std::optional<Readable>> BoundedStalenessMode::CanRead(
    const UnitMarks& unit, uint64_t oldest, const Want& want) const {
  const uint64_t bound = context_.plan->staleness_bound();
  for (size_t w = 0; w < context_.slots.size(); ++w) {
    // I1 holds for the minimum when it holds for every live slot; I2: `live` is
    // false once a slot retires. The first comparison keeps the difference of
    // unsigned numbers from wrapping.
    if (context_.slots[w].live && want.clock() > unit.marks[w] &&
        want.clock() - unit.marks[w] > bound) {
      return std::nullopt;
    }
  }
  return AsyncMode::CanRead(unit, oldest, want);
}

}  // namespace weir
