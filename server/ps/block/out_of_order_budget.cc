#include "server/ps/block/out_of_order_budget.h"

namespace weir {

void OutOfOrderBudget::Room::GiveBack() {
  if (bytes_ > 0) {
    budget_->used_ -= std::exchange(bytes_, 0);
  }
}

bool OutOfOrderBudget::TakeForRows(uint64_t bytes, bool awaited, Room* room) {
  if (!awaited) {
    return TryTake(bytes, room, /*or_alone=*/true);
  }
  // I1: beyond the bound, if it must be.
  used_ += bytes;
  room->budget_ = this;
  room->bytes_ += bytes;
  return true;
}

bool OutOfOrderBudget::TryTake(uint64_t bytes, Room* room, bool or_alone) {
  uint64_t used = used_.load(std::memory_order_relaxed);
  do {
    // I3. Awaited rows may have taken more than the bound; what has no bytes
    // needs no room even then.
    const bool fits = bytes == 0 || used + bytes <= bytes_max_;
    const bool alone = or_alone && used == room->bytes_;
    if (!fits && !alone) {
      return false;  // I2: the caller gives up what it holds
    }
  } while (!used_.compare_exchange_weak(used, used + bytes));
  room->budget_ = this;
  room->bytes_ += bytes;
  return true;
}

}  // namespace weir
