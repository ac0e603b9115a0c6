#include "server/ps/store/slot_grants.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace weir {

absl::Status CheckSlots(const std::vector<SlotState>& slots,
                        const SetSlotsRequest& request) {
  for (const SetSlotsRequest::Slot& slot : request.slot()) {
    if (slot.slot() >= slots.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot ", slot.slot(), " of ", slots.size(), " slots"));
    }
    if (slot.generation() > kGenerationMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot ", slot.slot(), " generation ", slot.generation(),
                       " is over ", kGenerationMax));
    }
    // I1: a chief that was replaced may still send what it once granted.
    const uint32_t granted = slots[slot.slot()].generation;
    if (slot.generation() < granted) {
      return absl::PermissionDeniedError(
          absl::StrCat("slot ", slot.slot(), " generation ", slot.generation(),
                       " is older than ", granted, ", granted by another"));
    }
    // I2: two chiefs that draw the same number grant it to two processes; the
    // second one is refused. 0 means that a side does not know the process.
    const uint64_t process = slots[slot.slot()].process;
    if (slot.generation() == granted && slot.process() != 0 && process != 0 &&
        slot.process() != process) {
      return absl::PermissionDeniedError(
          absl::StrCat("slot ", slot.slot(), " generation ", granted,
                       " was granted to another process"));
    }
    const SlotState& state = slots[slot.slot()];
    const bool asks = slot.capability_high() != 0 || slot.capability_low() != 0;
    const bool has = state.capability_high != 0 || state.capability_low != 0;
    if (slot.generation() == granted && asks && has &&
        (slot.capability_high() != state.capability_high ||
         slot.capability_low() != state.capability_low)) {
      return absl::PermissionDeniedError(
          absl::StrCat("slot ", slot.slot(), " generation ", granted,
                       " was granted with another capability"));
    }
  }
  return absl::OkStatus();
}

void SetSlots(const SetSlotsRequest& request, std::vector<SlotState>* slots) {
  for (const SetSlotsRequest::Slot& slot : request.slot()) {
    SlotState& state = (*slots)[slot.slot()];
    // I3: a repeated or late request must not revive a worker that is done.
    const bool retired =
        slot.retired() ||
        (state.retired && slot.generation() == state.generation);
    // A request that does not know the process leaves the name that an
    // earlier one gave to the same generation (I2).
    if (slot.process() != 0 || slot.generation() != state.generation) {
      state.process = slot.process();
    }
    // Before the generation: who reads a new generation finds its capability.
    if (slot.capability_high() != 0 || slot.capability_low() != 0 ||
        slot.generation() != state.generation) {
      state.capability_high = slot.capability_high();
      state.capability_low = slot.capability_low();
    }
    state.generation = slot.generation();
    state.retired = retired;
    state.live = !retired;
  }
}

std::vector<SlotStatus> SlotTable(const std::vector<SlotState>& slots) {
  std::vector<SlotStatus> table(slots.size());
  for (size_t w = 0; w < table.size(); ++w) {
    table[w].set_slot(static_cast<uint32_t>(w));
    table[w].set_generation(slots[w].generation);
    table[w].set_retired(slots[w].retired);
    table[w].set_process(slots[w].process);
    // The neutral element of the minimum over blocks.
    table[w].set_next_sequence_min(UINT64_MAX);
  }
  return table;
}

}  // namespace weir
