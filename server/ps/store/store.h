// One shard of the parameters, and the rules by which they change.
//
// Place: everything a ps decides is here;
// server/ps/service/parameter_service.cc only decodes, calls the store, and
// encodes. No gRPC, no threads of its own, no waiting: what must wait is parked
// with a continuation and a deadline.
//
// Terms
//   sequence   the number of a contribution in its slot, from 0 in a history;
//              (slot, sequence) is the identity of its push.
//   mark       per (slot, block): the next sequence number that the block
//              accepts.
//   version    per block: base_version + updates applied.
//   shard      what Declare or Restore made; replaced whole by Restore.
//
// Invariants
//   I1. A block's mark and values change together, under the block's lock
//       (lock_free: the mark is claimed first).
//   I2. (slot, sequence) changes a block at most once, and only in ascending
//       order of the sequence numbers.
//   I3. A request of another job, history, layout or older generation changes
//       nothing. Neither does a Restore by a chief that has not seen the
//       history which is in training. One generation of a slot belongs to one
//       process, where SetSlots names it.
//   I4. Sync: a block sums contributions 0..n-1 in index order and publishes
//       version t+1 as sum(w g)/sum(w) applied to version t.
//   I5. Memory that waits for its turn, of blocks and rows together, stays
//       within Declaration.out_of_order_bytes; the contribution that is awaited
//       is always accepted (server/ps/block/out_of_order_budget.h).
// Threads: safe. Continuations run on the thread that made their condition
//   hold, or in ExpireWaits, with no lock held.
// Errors: the codes of proto/ps.proto.
// Cost: Push is one pass over the payload for the NaN check and one for the
//   update; Pull copies nothing.
#ifndef SERVER_PS_STORE_STORE_H_
#define SERVER_PS_STORE_STORE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/io/files.h"
#include "common/io/payload.h"
#include "proto/ps.pb.h"
#include "server/ps/block/block_buffer.h"
#include "server/ps/block/continuations.h"
#include "server/ps/rows/table_group.h"

namespace weir {

class Shard;
class ShardPlan;
class Store;

// One PushRows call: pieces come in, and take effect together at the end, or
// not at all. Threads: compatible.
class RowPush {
 public:
  explicit RowPush(Store* store) : store_(store) {}
  ~RowPush();
  RowPush(const RowPush&) = delete;
  RowPush& operator=(const RowPush&) = delete;

  absl::Status Add(const PushRowsChunk& chunk, const Payload& payload);
  // Calls `done` exactly once, maybe before returning. REQUIRES: Add was OK.
  void Apply(PushRowsDone done);

 private:
  Store* const store_;
  // Of the first piece. Before update_, which gives its room back to the shard
  // if the client left in the middle.
  std::shared_ptr<Shard> shard_;
  StagedPush update_;
};

// Bytes of payloads, and the calls that move them.
struct PayloadCounters {
  std::atomic<uint64_t> received{0};
  std::atomic<uint64_t> sent{0};
  std::atomic<int64_t> open_calls{0};
};

class Store {
 public:
  struct Options {
    Clock* clock = Clock::Real();
    Arena* arena = Arena::Heap();
    ObjectStore* files = Files::Real();
    uint64_t incarnation = 0;  // random, from main
    // How much a declared shard may allocate, together with the shard that it
    // replaces; a larger one is refused. 0: what this process may use
    // (common/base/memory_limit.h), less what it uses when the store is made.
    int64_t memory_bytes_max = 0;
    // Holds the checkpoints that Restore reads and Snapshot writes. Empty: both
    // are refused.
    std::string checkpoint_root = "";
  };

  static absl::StatusOr<std::unique_ptr<Store>> Create(Options options);
  ~Store();

  HelloReply Hello() const;
  PsStatus GetStatus(const GetStatusRequest& request = {}) const;
  // What calls of this ps have moved; whoever moves it adds to it. A call may
  // outlive the store.
  std::shared_ptr<PayloadCounters> payloads() { return payloads_; }
  uint64_t incarnation() const { return options_.incarnation; }

  absl::StatusOr<DeclareReply> Declare(const DeclareRequest& request);
  absl::StatusOr<DeclareReply> Restore(const RestoreRequest& request);
  absl::Status Assign(const AssignChunk& header, const Payload& payload);
  absl::Status SetSlots(const SetSlotsRequest& request);
  // OK when the sender holds the slot that it names, in its generation.
  absl::Status CheckHolder(const Sender& sender) const;
  // OK when the sender may end this ps: it speaks of the shard and knows the
  // secret of the chief that made it, if that chief had one; or nothing is
  // declared and the request names no history.
  absl::Status CheckShutdown(const ShutdownRequest& request) const;

  // Applies one chunk (see GradientChunk: one block with a payload, or a run
  // without). `chunk.push` must be set; `chunk.want` is not looked at.
  // Takes the payload: sync may keep it until its turn.
  absl::StatusOr<Receipt> Push(const GradientChunk& chunk, Payload payload);

  // Calls `done` exactly once, maybe before returning. Every parked pull ends
  // by its deadline (ExpireWaits), by its condition, or by Restore.
  void Pull(const Sender& sender, int block, const Want& want, PullDone done);

  // Calls `done` exactly once, as Pull does.
  void PullRows(const PullRowsChunk& request, PullRowsDone done);
  absl::StatusOr<ShrinkReply> Shrink(const ShrinkRequest& request);

  // Blocks of this shard, or FAILED_PRECONDITION.
  absl::StatusOr<int> BlockCount(const Sender& sender) const;

  // Bytes of all dense parameters of the model, on every shard, as float32; 0
  // before it is declared.
  uint64_t ModelBytes() const;

  // Ends parked waits whose deadline has passed. Call every 50 ms or so.
  void ExpireWaits();

  // Calls `done` with FROZEN, then with WRITTEN; or with an error, once. Files
  // are written in functions that `run` gets, and runs on another thread: this
  // call touches none.
  void Snapshot(const SnapshotRequest& request, SnapshotDone done,
                std::function<void(std::function<void()>)> run);

 private:
  friend class RowPush;

  explicit Store(Options options);
  std::shared_ptr<Shard> shard() const;
  // The shard, if `sender` speaks of it; FAILED_PRECONDITION otherwise.
  absl::StatusOr<std::shared_ptr<Shard>> ShardFor(const Sender& sender) const;
  HelloReply HelloOf(const Shard* current) const;  // null: empty
  DeclareReply ReplyFor(const Shard& shard) const;
  // Where the checkpoint of that name is.
  absl::StatusOr<std::string> CheckpointDirectory(
      const std::string& name) const;
  // Plans a shard that fits into memory while `old` is there as well; null:
  // nothing is.
  absl::StatusOr<std::shared_ptr<const ShardPlan>> PlanBeside(
      const Shard* old, const Declaration& declaration, uint32_t index) const;

  const Options options_;
  const std::shared_ptr<PayloadCounters> payloads_ =
      std::make_shared<PayloadCounters>();
  // Held by Declare and Restore from beginning to end.
  Mutex control_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  mutable Mutex mutex_;
  // Readers take a copy of the pointer and then work without this lock.
  std::shared_ptr<Shard> shard_ ABSL_GUARDED_BY(mutex_);
  // The secret of the chief that made shard_. Empty: Shutdown needs no secret.
  std::string chief_secret_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // SERVER_PS_STORE_STORE_H_
