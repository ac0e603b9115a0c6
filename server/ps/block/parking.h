// Bounds how many waits may be parked at one place, and by whom.
//
// Every slot has a share. Readers, who hold no slot, have one share together.
// So no sender's waits are refused because of another's.
//
// Threads: compatible.
// Errors: RESOURCE_EXHAUSTED  the share is used up.
#ifndef SERVER_PS_BLOCK_PARKING_H_
#define SERVER_PS_BLOCK_PARKING_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/ps.pb.h"

namespace weir {

// Whose share a parked wait counts in.
struct Parker {
  explicit Parker(const Sender& sender)
      : slot(sender.generation() == 0 ? -1 : int64_t{sender.slot()}) {}

  int64_t slot;  // -1: a reader
};

struct ParkingShares {
  int64_t per_slot = 0;
  int64_t readers = 0;
};

// Returns OK when `sender` may park one more wait beside `parked`; the parker()
// of each tells whose it is. `what` names the waits in the message.
template <class Wait>
absl::Status CheckRoomToPark(const std::vector<Wait>& parked,
                             const Sender& sender, const ParkingShares& shares,
                             const char* what) {
  const Parker who(sender);
  const int64_t most = who.slot < 0 ? shares.readers : shares.per_slot;
  if (static_cast<int64_t>(parked.size()) < most ||
      std::count_if(parked.begin(), parked.end(), [&](const Wait& wait) {
        return wait.parker().slot == who.slot;
      }) < most) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      what, ": ", most, " waits of ",
      who.slot < 0 ? std::string("readers") : absl::StrCat("slot ", who.slot),
      " are parked already"));
}

}  // namespace weir

#endif  // SERVER_PS_BLOCK_PARKING_H_
