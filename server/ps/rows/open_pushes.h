// The pushes of rows that are coming in: one for each slot at most.
//
// Place: TableGroup puts the pieces of a push here as they come, and takes all
//   of them out when the last one has come.
//
// Terms
//   number  of a push, from Begin; none is used twice.
//
// Invariants
//   I1. A slot has one open push. Another one ends it and drops what was
//       staged of it, at once: so a stream that broke, or was left open, holds
//       nothing any more when its slot goes on.
//   I2. A push holds at most `bytes_max`.
//   I3. What is staged holds room of the budget.
// Threads: safe.
// Errors: ABORTED           a newer push of the slot took this one's place.
//         INVALID_ARGUMENT  the push is too large.
#ifndef SERVER_PS_ROWS_OPEN_PUSHES_H_
#define SERVER_PS_ROWS_OPEN_PUSHES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "server/ps/block/out_of_order_budget.h"
#include "server/ps/rows/staged_push.h"

namespace weir {

class OpenPushes {
 public:
  // `budget` is borrowed.
  OpenPushes(size_t slots, OutOfOrderBudget* budget, uint64_t bytes_max)
      : budget_(*budget), bytes_max_(bytes_max), slots_(slots) {}

  // Opens a push of `update.sender`, which must have a slot, and gives it its
  // number.
  void Begin(StagedPush* update);
  // Takes room for `bytes` more. False: there is none, and what was staged is
  // dropped. `awaited` is as in OutOfOrderBudget.
  absl::StatusOr<bool> TakeRoom(const StagedPush& update, uint64_t bytes,
                                bool awaited);
  // Stages rows. REQUIRES: they have room.
  absl::Status Add(const StagedPush& update, std::vector<StagedRows> rows);
  // Drops what was staged, and gives its room back.
  void Drop(const StagedPush& update);
  // Moves what was staged, and its room, to `update`, which is not open after
  // that.
  absl::Status Close(StagedPush* update);

 private:
  struct Open {
    uint64_t number = 0;  // 0: none
    uint64_t bytes = 0;
    std::vector<StagedRows> rows;
    OutOfOrderBudget::Room room;
  };

  // The open push that `update` is.
  absl::StatusOr<Open*> Find(const StagedPush& update)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  OutOfOrderBudget& budget_;
  const uint64_t bytes_max_;
  Mutex mutex_;
  uint64_t newest_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Open> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // SERVER_PS_ROWS_OPEN_PUSHES_H_
