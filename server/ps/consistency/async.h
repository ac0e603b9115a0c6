// Asynchronous updates: applied on arrival, under one lock per block.
//
// Place: the default mode. Two workers wait for each other only when they push
// the same block within the same 100 us, and a reader waits no longer either.
//
// Invariants
//   I1. A pulled block is the state after exactly `version - base_version`
//       whole updates: never a mix.
//   I2. Staleness = the block's version at apply minus push.base_version,
//       recorded for every applied push.
// Cost: one pass over the payload before the lock, one under it; a copy of the
//   block, in the same pass, when a pull or a snapshot still holds it.
#ifndef SERVER_PS_CONSISTENCY_ASYNC_H_
#define SERVER_PS_CONSISTENCY_ASYNC_H_

#include <optional>
#include <vector>

#include "server/ps/consistency/consistency_mode.h"

namespace weir {

class AsyncMode : public ConsistencyMode {
 public:
  explicit AsyncMode(ShardContext* context) : ConsistencyMode(context) {}

  absl::StatusOr<Receipt> Push(Block& block, BlockGradient gradient,
                               DueList& due) override;
  absl::StatusOr<std::optional<Readable>> CanRead(
      const UnitMarks& unit, uint64_t oldest, const Want& want) const override;

 protected:
  // The decision that is taken under the lock before any arithmetic.
  struct Admission {
    bool apply = false;
    Receipt receipt;
  };
  // Checks the sequence number and the version. Takes the mark and, when the
  // gradient `moves` anything, the version. `bad_variable` is FindNonFinite's.
  absl::StatusOr<Admission> Admit(Block& block, const BlockGradient& gradient,
                                  bool moves, int bad_variable)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
};

}  // namespace weir

#endif  // SERVER_PS_CONSISTENCY_ASYNC_H_
