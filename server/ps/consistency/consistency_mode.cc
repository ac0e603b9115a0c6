#include "server/ps/consistency/consistency_mode.h"

#include "absl/strings/str_cat.h"

namespace weir {

absl::StatusOr<bool> ConsistencyMode::IsNextSequence(
    const Block& block, const BlockGradient& gradient) {
  const uint64_t mark = block.marks[gradient.slot];
  const uint64_t sequence = gradient.push->sequence();
  // I1. Both other cases leave the block as it is (I2): the client resends from
  // the number that the message names, or hears that it has been counted.
  if (sequence > mark) {
    return absl::OutOfRangeError(
        absl::StrCat("slot ", gradient.slot, " block ", block.plan.index,
                     ": expected sequence number ", mark, ", got ", sequence));
  }
  return sequence == mark;
}

Receipt ConsistencyMode::MakeReceipt(const BlockGradient& gradient,
                                     Receipt::Outcome outcome) {
  // I3 is told to the client as LEFT_OUT; the member adds the bad variable.
  Receipt receipt;
  receipt.set_outcome(outcome);
  receipt.set_sequence(gradient.push->sequence());
  return receipt;
}

}  // namespace weir
