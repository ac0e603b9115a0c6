#include "client/cc/job/slot_marks.h"

#include <algorithm>

namespace weir {

void SlotMarks::Add(
    const google::protobuf::RepeatedPtrField<SlotStatus>& slots) {
  const auto it = std::find_if(
      slots.begin(), slots.end(),
      [this](const SlotStatus& status) { return status.slot() == slot_; });
  const SlotStatus status = it == slots.end() ? SlotStatus() : *it;
  // I1: the neutral elements of the smallest and of the largest.
  if (status.next_sequence_min() <= status.next_sequence_max()) {
    smallest_ = std::min(smallest_, status.next_sequence_min());
    largest_ = std::max(largest_, status.next_sequence_max());
  }
  generation_ = std::max(generation_, status.generation());
  generation_min_ = std::min(generation_min_, status.generation());
  retired_ = retired_ && status.retired();
}

bool SlotMarks::RetiredIn(uint32_t generation) const {
  return retired_ && generation_ == generation && generation_min_ == generation;
}

}  // namespace weir
