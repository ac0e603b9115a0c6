// The slots of a shard, as SetSlots leaves them.
//
// Place: Store holds its lock over CheckSlots and SetSlots, so that a request
// is applied whole or not at all.
//
// Invariants
//   I1. A slot's generation never decreases.
//   I2. One generation of a slot belongs to one process and has one capability,
//       once SetSlots has named them.
//   I3. A retired slot comes back only with a new generation.
// Threads: SetSlots one at a time; the others safe.
// Errors: INVALID_ARGUMENT   no such slot; a generation over kGenerationMax.
//         PERMISSION_DENIED  an older generation, or another process's.
#ifndef SERVER_PS_STORE_SLOT_GRANTS_H_
#define SERVER_PS_STORE_SLOT_GRANTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "proto/ps.pb.h"
#include "server/ps/block/shard_context.h"

namespace weir {

// One less than a number of 32 bits may be would lock the slot: no generation
// could come after it.
inline constexpr uint32_t kGenerationMax = uint32_t{1} << 31;

// OK when SetSlots may be called with the same request.
absl::Status CheckSlots(const std::vector<SlotState>& slots,
                        const SetSlotsRequest& request);
// Takes what the request says of its slots; leaves the others as they are.
// REQUIRES: CheckSlots was OK, and nothing was set in between.
void SetSlots(const SetSlotsRequest& request, std::vector<SlotState>* slots);

// One entry for each slot, as Hello reports it. The smallest sequence number
// is UINT64_MAX and the largest 0, for the caller to fill in from marks.
std::vector<SlotStatus> SlotTable(const std::vector<SlotState>& slots);

}  // namespace weir

#endif  // SERVER_PS_STORE_SLOT_GRANTS_H_
