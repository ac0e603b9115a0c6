// A declared shard: its blocks, its tables, and what waits in it.
//
// Place: made whole by Declare or Restore, replaced whole by Restore. Store
// finds the shard; everything about one shard is here. sender_checks.h says who
// may speak to it, slot_grants.h keeps its slots, and the consistency mode
// (server/ps/consistency) decides how blocks change.
//
// Invariants
//   I1. A sender of another job, history, layout or generation changes nothing.
//   I2. A parked pull ends exactly once: by its condition, its deadline or
//       Close.
//   I3. After Close nothing parks.
// Threads: safe. Continuations run without locks.
// Errors: the codes of proto/ps.proto.
#ifndef SERVER_PS_STORE_SHARD_H_
#define SERVER_PS_STORE_SHARD_H_

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/io/files.h"
#include "common/io/payload.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/ps.pb.h"
#include "server/ps/block/block.h"
#include "server/ps/block/continuations.h"
#include "server/ps/block/shard_context.h"
#include "server/ps/consistency/consistency_mode.h"
#include "server/ps/plan/shard_plan.h"
#include "server/ps/rows/table_group.h"
#include "server/ps/rows/table_snapshot.h"
#include "server/ps/store/sender_checks.h"
#include "server/ps/store/slot_grants.h"

namespace weir {

class Shard : public std::enable_shared_from_this<Shard> {
 public:
  // Makes a shard with the initial values of its variables.
  static absl::StatusOr<std::shared_ptr<Shard>> Initialise(
      std::shared_ptr<const ShardPlan> plan, Arena* arena, Clock* clock);
  // Makes a shard with the values, optimizer state and step counts of a
  // checkpoint of the same variables, which may have been written by any number
  // of shards. INVALID_ARGUMENT names what differs.
  static absl::StatusOr<std::shared_ptr<Shard>> FromCheckpoint(
      std::shared_ptr<const ShardPlan> plan, Arena* arena, Clock* clock,
      ObjectStore* files, CheckpointReader& reader);

  const ShardPlan& plan() const { return plan_; }
  bool active() const { return active_; }

  // As in sender_checks.h and slot_grants.h, for this shard.
  absl::Status CheckSender(const Sender& sender) const {
    return weir::CheckSender(plan_, sender);
  }
  absl::Status CheckChief(const Sender& sender) const {
    return weir::CheckChief(plan_, sender);
  }
  absl::Status CheckGeneration(const Sender& sender) const {
    return weir::CheckGeneration(context_.slots, sender);
  }
  absl::Status CheckSlots(const SetSlotsRequest& request) const {
    return weir::CheckSlots(context_.slots, request);
  }
  // Makes the shard ACTIVE. ApplySlots must follow, without Store's lock.
  void SetSlots(const SetSlotsRequest& request);

  // These are as in Store. REQUIRES: CheckSender of the request was OK.
  absl::Status Assign(const AssignChunk& header, const Payload& payload);
  absl::StatusOr<Receipt> Push(const GradientChunk& chunk, Payload payload);
  void Pull(const Sender& sender, int block, const Want& want, PullDone done);
  void PullRows(const PullRowsChunk& request, PullRowsDone done);
  absl::Status StagePush(const PushRowsChunk& chunk, const Payload& payload,
                         StagedPush* update);
  // For requests that need no other check.
  TableGroup& tables() { return *tables_; }
  int block_count() const { return static_cast<int>(blocks_.size()); }
  void ExpireWaits();
  // Writes into `directory`.
  void Snapshot(const SnapshotRequest& request, ObjectStore* files,
                const std::string& directory, SnapshotDone done,
                std::function<void(std::function<void()>)> run);

  // Tells every block who takes part, and answers every pull that can be
  // answered then.
  void ApplySlots();
  // Ends every wait and snapshot with `status`, now and from now on.
  void Close(const absl::Status& status);

  void FillHello(HelloReply* reply) const;
  void FillStatus(const GetStatusRequest& request, PsStatus* status) const;

 private:
  Shard(std::shared_ptr<const ShardPlan> plan, Arena* arena, Clock* clock);

  static absl::StatusOr<std::shared_ptr<Shard>> Make(
      std::shared_ptr<const ShardPlan> plan, Arena* arena, Clock* clock);

  // The gradient as float32: where it lies, or decoded into a buffer of its
  // own. INVALID_ARGUMENT when the size is not the block's.
  absl::StatusOr<Payload> Decoded(const GradientChunk& chunk, Payload payload);
  absl::StatusOr<Receipt> PushBlock(const GradientChunk& chunk, int block,
                                    Payload payload);
  // OK, or INVALID_ARGUMENT when this shard has no such block.
  absl::Status CheckBlock(int64_t block) const;
  // Runs what became due by a change, and answers the pulls that waited for it.
  void Finish(Block& block, const DueList& due);
  // Ends the parked pulls whose want holds, or whose deadline is not after
  // `now_ns`.
  void Wake(Block& block, int64_t now_ns);
  // Freezes the blocks that can be frozen. In sync the others await their
  // version.
  void FreezeBlocks(const std::shared_ptr<SnapshotJob>& job,
                    const SnapshotRequest& request, DueList& due)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(snapshot_mutex_);
  // Freezes the tables in the same way, and has their file written.
  void FreezeTables(const std::shared_ptr<SnapshotJob>& job,
                    const SnapshotRequest& request, ObjectStore* files);
  // Makes no block and no table await a version any more.
  void DropAwaiting();
  // Ends a snapshot whose version can no longer come, since every slot has
  // retired.
  void CancelHopelessSnapshot();

  const ShardPlan& plan_;
  Clock* const clock_;
  ShardContext context_;
  const std::unique_ptr<ConsistencyMode> mode_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<TableGroup> tables_;  // never null; may have no table
  TableSnapshots table_snapshots_;  // used by the thread that writes files only
  std::atomic<bool> active_{false};
  // Taken before any block's mutex and before the tables'.
  mutable Mutex snapshot_mutex_;
  absl::Status closed_ ABSL_GUARDED_BY(snapshot_mutex_);  // OK: it is not
  // The newest snapshot; it lives as long as it has something to do.
  std::weak_ptr<SnapshotJob> snapshot_ ABSL_GUARDED_BY(snapshot_mutex_);
};

}  // namespace weir

#endif  // SERVER_PS_STORE_SHARD_H_
