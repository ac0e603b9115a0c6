// A declared shard: its blocks, who may speak to it, and what waits in it.
//
// Place: made whole by Declare or Restore, replaced whole by Restore. Store
// finds the shard; everything about one is here. The rules of change are the
// consistency mode's (server/ps/update).
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

namespace weir {

class Shard : public std::enable_shared_from_this<Shard> {
 public:
  static constexpr uint32_t kDefaultTimeoutMs = 2000;
  static constexpr uint32_t kMaxTimeoutMs = 10000;

  // Values by initialiser.
  static absl::StatusOr<std::shared_ptr<Shard>> Initialise(
      std::shared_ptr<const ShardPlan> plan, Arena* arena, Clock* clock);
  // Values, slots and step counts from a checkpoint of the same variables,
  // written on any number of shards. INVALID_ARGUMENT names what differs.
  static absl::StatusOr<std::shared_ptr<Shard>> FromCheckpoint(
      std::shared_ptr<const ShardPlan> plan, Arena* arena, Clock* clock,
      Files* files, CheckpointReader& reader);

  const ShardPlan& plan() const { return plan_; }
  bool active() const { return active_; }

  // Job, history and layout.
  absl::Status CheckSender(const Sender& sender) const;
  // CheckSender for what only a chief asks: another history of this job is
  // another chief's.
  absl::Status CheckChief(const Sender& sender) const;

  // As in Store; the sender's job, history and layout were checked.
  absl::Status Assign(const AssignChunk& header, const Payload& payload);
  absl::Status CheckSlots(const SetSlotsRequest& request) const;
  // ApplySlots must follow.
  void SetSlots(const SetSlotsRequest& request);
  absl::StatusOr<Receipt> Push(const GradientChunk& chunk, Payload payload);
  void Pull(const Sender& sender, int block, const Want& want, PullDone done);
  void PullRows(const PullRowsChunk& request, PullRowsDone done);
  absl::Status StagePush(const PushRowsChunk& chunk, const Payload& payload,
                         StagedPush* update);
  void DropPush(StagedPush* update) { tables_->Drop(update); }
  void PushRows(StagedPush update, PushRowsDone done) {
    tables_->PushRows(std::move(update), std::move(done));
  }
  absl::StatusOr<ShrinkReply> Shrink(const ShrinkRequest& request) {
    return tables_->Shrink(request);
  }
  absl::StatusOr<int64_t> BlockElements(int block) const;
  int block_count() const { return static_cast<int>(blocks_.size()); }
  void ExpireWaits();
  void Snapshot(const SnapshotRequest& request, Files* files, SnapshotDone done,
                std::function<void(std::function<void()>)> run);

  // Tells every block who takes part, and answers every pull that can be
  // answered then.
  void ApplySlots();
  // Ends every wait and snapshot with `status`, now and from now on.
  void Close(const absl::Status& status);

  void FillHello(HelloReply* reply) const;
  void FillStatus(int hot_ids, PsStatus* status) const;

 private:
  Shard(std::shared_ptr<const ShardPlan> plan, Arena* arena, Clock* clock);

  static absl::StatusOr<std::shared_ptr<Shard>> Make(
      std::shared_ptr<const ShardPlan> plan, Arena* arena, Clock* clock);

  // The slot's generation is the one granted; 0 passes.
  absl::Status CheckGeneration(const Sender& sender) const;
  // The sender may push.
  absl::Status CheckPusher(const Sender& sender) const;
  absl::Status CheckPush(const GradientChunk& chunk,
                         const Payload& payload) const;
  absl::Status CheckHyper(const Hyper& hyper) const;
  absl::StatusOr<Payload> Decoded(const GradientChunk& chunk, Payload payload);
  absl::StatusOr<Receipt> PushBlock(const GradientChunk& chunk, int block,
                                    Payload payload);
  // After a change: runs what became due and answers who waited for it.
  void Finish(Block& block, const DueList& due);
  // Ends the parked pulls whose want holds, or whose deadline is not after
  // `now_ns`.
  void Wake(Block& block, int64_t now_ns);
  // Freezes what can be frozen; sync: the rest awaits its version.
  void FreezeBlocks(const std::shared_ptr<SnapshotJob>& job,
                    const SnapshotRequest& request, DueList& due)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(snapshot_mutex_);
  // Likewise the tables.
  void FreezeTables(const std::shared_ptr<SnapshotJob>& job,
                    const SnapshotRequest& request, Files* files);
  // Nothing awaits a version any more.
  void DropAwaiting();
  // Ends a snapshot that awaits a version which nobody is left to bring.
  void CancelHopelessSnapshot();
  std::vector<SlotStatus> SlotTable() const;

  const ShardPlan& plan_;
  Clock* const clock_;
  ShardContext context_;
  const std::unique_ptr<ConsistencyMode> mode_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<TableGroup> tables_;  // never null; may have no table
  TableSnapshots table_snapshots_;      // of the thread that writes them
  std::atomic<bool> active_{false};
  std::atomic<bool> closed_{false};
  // Before any block's mutex.
  mutable Mutex snapshot_mutex_;
  absl::Status close_status_ ABSL_GUARDED_BY(snapshot_mutex_);
  // The newest; alive as long as it has something to do.
  std::weak_ptr<SnapshotJob> snapshot_ ABSL_GUARDED_BY(snapshot_mutex_);
};

}  // namespace weir

#endif  // SERVER_PS_STORE_SHARD_H_
