#include "server/ps/consistency/consistency_mode.h"

#include "absl/strings/str_cat.h"

namespace weir {

absl::StatusOr<bool> UpdateMode::IsNextItem(const Block& block,
                                            const Contribution& contribution) {
  const uint64_t mark = block.marks[contribution.slot];
  const uint64_t item = contribution.push->item();
  if (item > mark) {
    return absl::OutOfRangeError(
        absl::StrCat("slot ", contribution.slot, " block ", block.plan.index,
                     ": expected item ", mark, ", got ", item));
  }
  return item == mark;
}

Receipt UpdateMode::MakeReceipt(const Contribution& contribution,
                                Receipt::Outcome outcome) {
  Receipt receipt;
  receipt.set_outcome(outcome);
  receipt.set_item(contribution.push->item());
  return receipt;
}

}  // namespace weir
