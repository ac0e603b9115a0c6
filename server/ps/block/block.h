// One block's state: everything that its lock protects.
//
// Place: Shard owns the blocks; the consistency modes (server/ps/consistency)
// change them.
//
// Terms
//   order     marks, version, and where a sync step is (unit_order.h).
//   parked    a pull whose want does not hold yet.
//   claim     lock_free: a push that has taken its mark and is still adding.
//   sum       sync: sum(w g) of the step under way.
//   previous  sync: the block one version back, until the next step begins;
//             without its optimizer state, if it has any.
//
// Invariants
//   I1. A buffer that others reference is never written to. The one exception
//       is lock_free: a pull that holds values may see a mix of two updates.
//   I2. lock_free: buffers are replaced only while no claim is open.
#ifndef SERVER_PS_BLOCK_BLOCK_H_
#define SERVER_PS_BLOCK_BLOCK_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/mutex.h"
#include "common/io/payload.h"
#include "proto/ps.pb.h"
#include "server/ps/block/block_buffer.h"
#include "server/ps/block/continuations.h"
#include "server/ps/block/out_of_order_budget.h"
#include "server/ps/block/parking.h"
#include "server/ps/block/unit_order.h"
#include "server/ps/plan/shard_plan.h"

namespace weir {

class SnapshotJob;

struct ParkedPull {
  Want want;
  PullDone done;
  int64_t parked_ns = 0;
};

// A block at one moment; nothing in it changes any more.
struct FrozenBlock {
  uint64_t version = 0;
  BlockRef values;
  std::vector<BlockRef> state;  // by state array; null where unused
  std::vector<uint64_t> steps;
  std::vector<uint64_t> marks;
};

// Sync: a contribution that is not in the sum yet.
struct EarlyGradient {
  ::weir::Push push;
  std::vector<bool> moved;  // segments
  Payload payload;
  OutOfOrderBudget::Room room;
};

// Sync: the sum of a step under way.
struct SyncStep {
  BlockRef sum;                 // null until something is added
  std::vector<double> weights;  // by segment: the weights that are in `sum`
  // The first contribution in the sum; its hyper-parameters count for the step.
  std::optional<::weir::Push> first;
};

struct Block {
  // How many pulls may be parked: wants in flight, and a few retries whose
  // streams broke.
  static constexpr ParkingShares kParkingShares = {256, 1024};

  // `waits_parked`, borrowed, counts the parked pulls of all blocks.
  Block(const BlockPlan* block_plan, uint64_t base_version, int slot_count,
        std::atomic<int64_t>* waits_parked);

  // Takes references to everything. Waits for open claims, which last as long
  // as one block's arithmetic.
  FrozenBlock Freeze() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Tells whether `previous` has version `wanted`, whole: a block with
  // optimizer state has it without the state.
  bool CanFreezePrevious(uint64_t wanted) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return previous.values && previous.version == wanted &&
           previous.state.size() == state.size();
  }

  // The oldest version whose values are still here.
  uint64_t oldest_version() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return previous.values ? previous.version : order.version;
  }

  // May be asked without the lock (Parking::empty).
  bool NobodyParked() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return parked.empty();
  }

  // Bytes of values, optimizer state, previous and sum.
  int64_t resident_bytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const BlockPlan& plan;

  mutable Mutex mutex;
  UnitOrder<EarlyGradient> order ABSL_GUARDED_BY(mutex);
  BlockRef values ABSL_GUARDED_BY(mutex);
  // By state array of the plan; null where no segment uses it.
  std::vector<BlockRef> state ABSL_GUARDED_BY(mutex);
  // By segment: optimizer steps.
  std::vector<uint64_t> steps ABSL_GUARDED_BY(mutex);
  Parking<ParkedPull> parked ABSL_GUARDED_BY(mutex);

  // lock_free
  int open_claims ABSL_GUARDED_BY(mutex) = 0;
  bool freezing ABSL_GUARDED_BY(mutex) = false;
  bool shared_with_snapshot ABSL_GUARDED_BY(mutex) = false;
  CondVar claims_changed;

  // sync
  FrozenBlock previous ABSL_GUARDED_BY(mutex);   // null values: there is none
  int64_t newest_ns ABSL_GUARDED_BY(mutex) = 0;  // when a push last counted
  SyncStep step ABSL_GUARDED_BY(mutex);
  // The snapshot that gets the block when it reaches the job's version.
  std::shared_ptr<SnapshotJob> awaiting ABSL_GUARDED_BY(mutex);
};

}  // namespace weir

#endif  // SERVER_PS_BLOCK_BLOCK_H_
