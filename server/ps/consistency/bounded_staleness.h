// Bounded staleness: fast workers may run ahead of slow ones, but not far.
//
// Place: updates are AsyncMode's; pulls wait for the slowest live slot.
//
// Terms
//   clock(w)  contributions of slot w that this unit, a block or the tables,
//             has accepted: its mark.
//   live      named by SetSlots and not retired.
//
// Invariants
//   I1. A pull at clock c is answered only while c - min clock <= bound, over
//       the live slots of this unit.
//   I2. A retired slot does not hold the others back.
// Cost: O(slots) per pull.
// Source: Ho et al., "More Effective Distributed ML via a Stale Synchronous
//         Parallel Parameter Server", NIPS 2013, section 3.
#ifndef SERVER_PS_CONSISTENCY_BOUNDED_STALENESS_H_
#define SERVER_PS_CONSISTENCY_BOUNDED_STALENESS_H_

#include <cstdint>
#include <optional>

#include "server/ps/consistency/async.h"

namespace weir {

class BoundedStalenessMode : public AsyncMode {
 public:
  explicit BoundedStalenessMode(ShardContext* context) : AsyncMode(context) {}

  absl::StatusOr<std::optional<Readable>> CanRead(
      const UnitMarks& unit, uint64_t oldest, const Want& want) const override;
};

}  // namespace weir

#endif  // SERVER_PS_CONSISTENCY_BOUNDED_STALENESS_H_
