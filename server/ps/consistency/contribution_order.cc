#include "server/ps/consistency/contribution_order.h"

#include "absl/strings/str_cat.h"
#include "common/base/plant.h"

namespace weir {

// Next and TurnOf, in the header since they move payloads of any type, keep I2,
// I3 and I4.

absl::StatusOr<bool> ContributionOrder::IsNext(const UnitMarks& unit,
                                               uint32_t slot,
                                               const Push& push) {
  const uint64_t mark = unit.marks[slot];
  // I1. Both other cases leave the unit as it is: the client resends from the
  // number that the message names, or hears that it has been counted.
  if (push.sequence() > mark) {
    return absl::OutOfRangeError(absl::StrCat("slot ", slot, " ", unit.name,
                                              ": expected sequence number ",
                                              mark, ", got ", push.sequence()));
  }
  return push.sequence() == mark;
}

absl::StatusOr<std::optional<uint64_t>> ContributionOrder::Admit(
    UnitMarks& unit, uint32_t slot, const Push& push, bool moves) {
  WEIR_ASSIGN_OR_RETURN(const bool next, IsNext(unit, slot, push));
  if (!next && !Planted("order.counts_again")) {
    return std::nullopt;
  }
  uint64_t staleness = 0;
  // What moves nothing is no update: it has no staleness and makes no version.
  if (moves) {
    if (push.base_version() > unit.version) {
      return absl::InvalidArgumentError(
          absl::StrCat(unit.name, ": base_version ", push.base_version(),
                       " is ahead of version ", unit.version));
    }
    staleness = unit.version - push.base_version();
    ++unit.version;
  }
  // The last step, after every check (I1).
  ++unit.marks[slot];
  return staleness;
}

absl::StatusOr<bool> ContributionOrder::IsNextOfStep(const UnitMarks& unit,
                                                     uint32_t slot,
                                                     const Push& push) const {
  if (push.index_in_step() >= contributions_) {
    return absl::InvalidArgumentError(
        absl::StrCat("contribution ", push.index_in_step(), " of a step of ",
                     contributions_));
  }
  WEIR_ASSIGN_OR_RETURN(const bool next, IsNext(unit, slot, push));
  if (next && push.base_version() > unit.version) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot ", slot, " ", unit.name, ": sequence number ",
                     push.sequence(), " is for version ", push.base_version(),
                     ", the newest is ", unit.version));
  }
  return next;
}

// Slot w makes k_w = ceil((n - w) / W) contributions in each step, and its
// sequence number t * k_w + j stands for index j * W + w of step t.
uint64_t ContributionOrder::SequenceOf(const UnitMarks& unit,
                                       uint32_t index) const {
  const uint64_t steps = unit.version - base_version_;
  const uint32_t slot = SlotOf(index);
  const uint32_t per_step = (contributions_ - slot + slots_ - 1) / slots_;
  // I5: marks of passed contributions move by this rule, so that a slot that
  // comes back goes on behind them.
  return steps * per_step + index / slots_;
}

}  // namespace weir
