// The table group of one shard: which pushes of rows count, in which order, and
// when rows may be read. All tables together are to rows what a block is to
// dense parameters: they have one set of marks and one version.
//
// Place: Shard owns it and has checked the sender. Rows and their optimizers
//   are in server/ps/table.
//
// Terms
//   update     the gradients of one contribution for all tables of this shard.
//              It may be empty, and is a step of every table all the same.
//   staged     an update that is still coming in; nothing of it is applied.
//   mark       per slot: the next sequence number that the tables accept.
//   version    base_version + updates applied (sync: steps published).
//   use        a pull that is reading rows, or an async update that is being
//              applied. Many may go on at once.
//   exclusive  work beside which no use may go on: publishing a sync step,
//              writing a checkpoint.
//
// Invariants
//   I1. An update takes effect whole, once per (slot, sequence), in
//       ascending order of the sequence numbers.
//   I2. Sync: rows are moved when version t + 1 is published. A row moves by
//       the sum of its weighted gradients in index order, divided by the
//       weights of all contributions of the step, including those that did not
//       touch the row.
//   I3. Sync: version t can be read until t + 2 is published.
//   I4. Staged updates stay within out_of_order_bytes, except for one update
//       when nothing else is staged and, in sync, the one that is awaited.
//   I5. No lock is held while rows are read or moved.
// Threads: safe. Continuations run without locks.
// Errors: the codes of proto/ps.proto.
// See "Tables on a shard" in docs/design_notes.md.
#ifndef SERVER_PS_ROWS_TABLE_GROUP_H_
#define SERVER_PS_ROWS_TABLE_GROUP_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/io/payload.h"
#include "proto/ps.pb.h"
#include "server/ps/block/block_buffer.h"
#include "server/ps/block/continuations.h"
#include "server/ps/block/parking.h"
#include "server/ps/block/shard_context.h"
#include "server/ps/rows/id_list_cache.h"
#include "server/ps/rows/staged_push.h"
#include "server/ps/table/row_sums.h"
#include "server/ps/table/rows_before.h"
#include "server/ps/table/table.h"

namespace weir {

// The answer to one PullRowsChunk. `header` is complete but for incarnation.
struct PulledRows {
  RowChunk header;
  BlockRef rows;     // holds the payload; null: none
  size_t bytes = 0;  // of the payload
};
using PullRowsDone = std::function<void(absl::StatusOr<PulledRows>)>;
// `header` is complete but for incarnation.
using PushRowsDone = std::function<void(absl::StatusOr<PushRowsReply>)>;

class TableGroup {
 public:
  // How many pulls may wait: as many as a client asks ahead. Readers have no
  // slot and share one bound, so that they keep nobody else out.
  static constexpr ParkingShares kParkingShares = {4096, 16384};

  // Makes empty tables. `context` is borrowed.
  static absl::StatusOr<std::unique_ptr<TableGroup>> Create(
      ShardContext* context, Arena* arena, Clock* clock);
  ~TableGroup();

  int count() const { return static_cast<int>(tables_.size()); }

  // Calls `done` once, maybe before returning.
  void PullRows(const PullRowsChunk& request, PullRowsDone done);

  // Takes one piece; after an error the update must be dropped.
  absl::Status Stage(const PushRowsChunk& chunk, const Payload& payload,
                     StagedPush* update);
  // Gives back what Stage took, unless PushRows was called.
  void Drop(StagedPush* update);
  // Applies all of it. REQUIRES: update.begun.
  void PushRows(StagedPush update, PushRowsDone done);

  absl::StatusOr<ShrinkReply> Shrink(const ShrinkRequest& request);

  // Takes what ShardContext::slots says now.
  void SlotsChanged();
  // Ends lookups that have waited long enough.
  void ExpireWaits();
  // Ends every wait with `status`, now and later.
  void Close(const absl::Status& status);

  // Calls `run` when no use is under way and, in sync, `version` is published;
  // from then on uses wait until Release. Calls `refused` instead when the
  // version cannot be read any more, or the group is closed first.
  void Freeze(std::optional<uint64_t> version, std::function<void()> run,
              std::function<void(absl::Status)> refused);
  void Release();
  // Forgets a Freeze that waits for its version. False when none waits.
  bool CancelFreeze();

  std::vector<uint64_t> marks() const;
  uint64_t version() const;
  // For sync, between `run` of Freeze and Release: tells whether `version` is
  // the one before the tables' own; `before` has what table t's rows were then.
  bool IsPrevious(uint64_t version) const;
  const RowsBefore& before(int t) const {
    return previous_[static_cast<size_t>(t)];
  }
  Table& table(int t) { return *tables_[static_cast<size_t>(t)]; }
  void FillStatus(int hot_ids, PsStatus* status);

 private:
  struct Parked {
    Parker parker() const { return Parker(request.sender()); }

    PullRowsChunk request;
    std::vector<Ids> ids;
    int64_t deadline_ns = 0;
    PullRowsDone done;
  };
  // Where lookups find their rows.
  enum class Readable : int { kNow, kPrevious, kNotYet };

  TableGroup(ShardContext* context, Arena* arena, Clock* clock);

  const EmbeddingTable& spec(int t) const {
    return context_.plan->declaration().table(t);
  }
  absl::StatusOr<std::vector<Ids>> Resolve(const PullRowsChunk& request,
                                           bool* unknown);
  absl::StatusOr<Readable> CanRead(const Want& want) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayUse() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !exclusive_ && exclusive_waiting_.empty();
  }
  void Gather(Parked lookup, Readable from, uint64_t version);
  void Leave();
  void StartExclusive(DueList& due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs what became due, and lookups that can be answered now.
  void Finish(DueList& due, int64_t now_ns);

  // Takes `bytes` of the budget. False when there is no room: the update is
  // then deferred and dropped (I4).
  bool TakeRoom(int64_t bytes, StagedPush* update);
  void PushAsync(StagedPush update, PushRowsDone done);
  // Takes the mark, a use and, if the update moves rows, the version. False
  // for a duplicate, which takes nothing.
  absl::StatusOr<bool> AdmitAsync(const StagedPush& update, bool moves,
                                  Receipt* receipt)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MoveRows(const StagedPush& update, PushRowsReply* reply);
  absl::StatusOr<PushRowsReply> PushSync(StagedPush update, DueList& due);
  absl::StatusOr<bool> IsNextSequence(const StagedPush& update) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  double RateOf(int t, const std::vector<TableRate>& rates) const;
  void TickClocks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // For sync, as in server/ps/consistency/sync.h, with all tables for a block.
  uint32_t Awaited() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddAtCursor(const StagedPush& update)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AdvanceTo(uint32_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AdvanceAndPublish(DueList& due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Publish();  // exclusive
  uint64_t SequenceOf(uint32_t contribution) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint32_t SlotOf(uint32_t contribution) const { return contribution % slots_; }

  // Constant after construction.
  ShardContext& context_;
  Arena* const arena_;
  Clock* const clock_;
  const ConsistencyKind kind_;
  const uint32_t contributions_;  // sync: n
  const uint32_t slots_;          // W
  std::vector<std::unique_ptr<Table>> tables_;

  IdListCache lists_;
  std::atomic<int64_t> staged_bytes_ = 0;
  std::vector<std::atomic<uint64_t>> rows_looked_up_;  // by table
  std::vector<std::atomic<uint64_t>> rows_updated_;

  mutable Mutex mutex_;  // protects all below
  std::vector<uint64_t> marks_ ABSL_GUARDED_BY(mutex_);
  uint64_t version_ ABSL_GUARDED_BY(mutex_);
  int uses_ ABSL_GUARDED_BY(mutex_) = 0;
  bool exclusive_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::function<void()>> exclusive_waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<Parked> parked_ ABSL_GUARDED_BY(mutex_);
  // Async updates that came while rows were frozen.
  std::vector<std::function<void()>> held_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  struct FreezeRequest {
    std::optional<uint64_t> version;
    std::function<void()> run;
    std::function<void(absl::Status)> refused;
  };
  std::optional<FreezeRequest> freeze_ ABSL_GUARDED_BY(mutex_);

  // Sync: the step under way.
  uint32_t cursor_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint32_t, StagedPush> early_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::vector<TableRate>> first_rates_ ABSL_GUARDED_BY(mutex_);
  double weight_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<bool> retired_ ABSL_GUARDED_BY(mutex_);
  // By table; added to under the lock, used by Publish alone after the last.
  std::vector<RowSums> sums_;
  // By table: before the last step, the rows that it moved. Changed by Publish
  // alone, read by lookups and checkpoints that it waits for.
  std::vector<RowsBefore> previous_;
  uint64_t previous_version_ ABSL_GUARDED_BY(mutex_) = ~uint64_t{0};
};

}  // namespace weir

#endif  // SERVER_PS_ROWS_TABLE_GROUP_H_
