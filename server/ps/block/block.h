// One block's state: everything that its lock protects.
//
// Place: Shard owns the blocks; the consistency modes (server/ps/consistency)
// change them.
//
// Terms
//   mark      per slot: the sequence number that the block accepts next.
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
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/mutex.h"
#include "common/io/payload.h"
#include "proto/ps.pb.h"
#include "server/ps/block/block_buffer.h"
#include "server/ps/block/continuations.h"
#include "server/ps/block/parking.h"
#include "server/ps/plan/shard_plan.h"

namespace weir {

class SnapshotJob;

struct ParkedPull {
  Parker by;
  const Parker& parker() const { return by; }
  Want want;
  int64_t deadline_ns = 0;
  PullDone done;
};

// A block at one moment; nothing in it changes any more.
struct FrozenBlock {
  uint64_t version = 0;
  BlockRef values;
  std::vector<BlockRef> state;  // by state array; null where unused
  std::vector<uint64_t> steps;
  std::vector<uint64_t> marks;
};

// Sync: a step under way.
struct SyncStep {
  // A contribution that came before its turn.
  struct Early {
    ::weir::Push push;
    std::vector<bool> moved;  // segments
    Payload payload;
  };

  uint32_t cursor = 0;  // contributions 0..cursor-1 are in the sum, or passed
  BlockRef sum;         // null until something is added
  std::vector<double> weights;  // by segment: the weights that are in `sum`
  // The first contribution in the sum; its hyper-parameters count for the step.
  std::optional<::weir::Push> first;
  std::map<uint32_t, Early> early;  // by index in step
};

struct Block {
  // How many pulls may be parked: wants in flight, and a few retries whose
  // streams broke.
  static constexpr ParkingShares kParkingShares = {256, 1024};

  Block(const BlockPlan* block_plan, uint64_t base_version, int slot_count);

  // Takes references to everything. Waits for open claims, which last as long
  // as one block's arithmetic. In sync the marks are those of the version, not
  // of the step under way.
  FrozenBlock Freeze() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Tells whether `previous` has version `wanted`; and whether it can be
  // frozen, which a block with optimizer state cannot: `previous` lacks it.
  bool HasPrevious(uint64_t wanted) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return previous.values && previous.version == wanted;
  }
  bool CanFreezePrevious(uint64_t wanted) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return HasPrevious(wanted) && previous.state.size() == state.size();
  }

  // RESOURCE_EXHAUSTED when `sender` has parked all that it may.
  absl::Status CheckRoom(const Sender& sender) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return CheckRoomToPark(parked, sender, kParkingShares, "a block");
  }

  // Bytes of values, optimizer state, previous and sum.
  int64_t resident_bytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const BlockPlan& plan;

  mutable Mutex mutex;
  uint64_t version ABSL_GUARDED_BY(mutex);
  BlockRef values ABSL_GUARDED_BY(mutex);
  // By state array of the plan; null where no segment uses it.
  std::vector<BlockRef> state ABSL_GUARDED_BY(mutex);
  // By segment: optimizer steps.
  std::vector<uint64_t> steps ABSL_GUARDED_BY(mutex);
  std::vector<uint64_t> marks ABSL_GUARDED_BY(mutex);  // by slot
  std::vector<ParkedPull> parked ABSL_GUARDED_BY(mutex);
  // Size of `parked`, so that a push need not lock again to look.
  std::atomic<int> parked_count{0};

  // lock_free
  int open_claims ABSL_GUARDED_BY(mutex) = 0;
  bool freezing ABSL_GUARDED_BY(mutex) = false;
  bool shared_with_snapshot ABSL_GUARDED_BY(mutex) = false;
  CondVar claims_changed;

  // sync
  FrozenBlock previous ABSL_GUARDED_BY(mutex);  // null values: there is none
  SyncStep step ABSL_GUARDED_BY(mutex);
  std::vector<uint64_t> published_marks ABSL_GUARDED_BY(mutex);
  std::vector<bool> retired ABSL_GUARDED_BY(mutex);  // by slot
  // The snapshot that gets the block when it reaches the job's version.
  std::shared_ptr<SnapshotJob> awaiting ABSL_GUARDED_BY(mutex);
};

}  // namespace weir

#endif  // SERVER_PS_BLOCK_BLOCK_H_
