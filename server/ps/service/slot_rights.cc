#include "server/ps/service/slot_rights.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir {

bool SlotRights::Leads() const {
  return !caller.has_value() || caller->role == PeerRole::kChief ||
         (caller->role == PeerRole::kWorker && caller->index.value_or(0) == 0 &&
          !has_chief);
}

void SlotRights::Limit(HelloReply* reply) const {  // I1
  if (Leads()) {
    return;
  }
  auto* const slots = reply->mutable_slot();
  for (int i = slots->size() - 1; i >= 0; --i) {
    const bool own = caller->role == PeerRole::kWorker &&
                     caller->index.value_or(-1) ==
                         static_cast<int64_t>(slots->Get(i).slot());
    if (!own) {
      slots->DeleteSubrange(i, 1);
    }
  }
}

absl::Status SlotRights::SetSlots(const SetSlotsRequest& request,
                                  Store* store) const {
  if (Leads()) {
    return store->SetSlots(request);
  }
  const Sender& sender = request.sender();
  for (const SetSlotsRequest::Slot& slot : request.slot()) {
    const bool own =
        caller->index.value_or(-1) == static_cast<int64_t>(slot.slot());
    const bool retires = slot.retired() && slot.slot() == sender.slot() &&
                         slot.generation() == sender.generation();
    if (!own || (has_chief && !retires)) {  // I1
      return absl::UnauthenticatedError(absl::StrCat(
          caller->ToUri(), " may not set slot ", slot.slot(),
          ": a worker may only take its own, where the cluster has no chief, "
          "and retire the one that it holds"));
    }
  }
  if (has_chief) {
    WEIR_RETURN_IF_ERROR(store->CheckHolder(sender));
  }
  return store->SetSlots(request);
}

}  // namespace weir
