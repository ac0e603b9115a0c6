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
//   version    base_version + updates applied (sync: steps published).
//   use, exclusive work   as in row_uses.h.
//   mark, cursor          as in server/ps/block/unit_order.h.
//
// Invariants
//   I1. An update takes effect whole, once per (slot, sequence), in
//       ascending order of the sequence numbers.
//   I2. Sync: rows are moved when version t + 1 is published. A row moves by
//       the sum of its weighted gradients in index order, divided by the
//       weights of all contributions of the step, including those that did not
//       touch the row.
//   I3. Sync: version t can be read until t + 2 is published.
//   I4. Staged updates take their room from the budget that they share with
//       early contributions of blocks (out_of_order_budget.h). A slot has one
//       at a time, and it is bounded (open_pushes.h).
//   I5. No lock is held while rows are read or moved.
//   I6. Rows that were gathered and have not left hold room of a budget
//       (answer_budget.h). A pull without room waits as one whose version is
//       not there yet.
// Threads: safe. Continuations run without locks.
// Errors: the codes of proto/ps.proto.
// See "Tables on a shard" in docs/design_notes.md.
#ifndef SERVER_PS_ROWS_TABLE_GROUP_H_
#define SERVER_PS_ROWS_TABLE_GROUP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/mutex.h"
#include "common/io/payload.h"
#include "proto/ps.pb.h"
#include "server/ps/block/continuations.h"
#include "server/ps/block/parking.h"
#include "server/ps/block/shard_context.h"
#include "server/ps/block/unit_order.h"
#include "server/ps/consistency/consistency_mode.h"
#include "server/ps/rows/answer_budget.h"
#include "server/ps/rows/hot_rows.h"
#include "server/ps/rows/id_list_cache.h"
#include "server/ps/rows/open_pushes.h"
#include "server/ps/rows/row_lookup.h"
#include "server/ps/rows/row_uses.h"
#include "server/ps/rows/staged_push.h"
#include "server/ps/table/row_sums.h"
#include "server/ps/table/rows_before.h"
#include "server/ps/table/table.h"

namespace weir {

// `header` is complete but for incarnation.
using PushRowsDone = std::function<void(absl::StatusOr<PushRowsReply>)>;

class TableGroup {
 public:
  // How many pulls may wait, for their version or for room in the budget of
  // answers. Readers have no slot and share one bound, so that they keep nobody
  // else out.
  static constexpr ParkingShares kParkingShares = {
      kRowWaitsPerSlot, kRowWaitsOfReaders, kRowWaitBytesPerSender};

  // Makes empty tables. `context` and `mode` are borrowed.
  static absl::StatusOr<std::unique_ptr<TableGroup>> Create(
      ShardContext* context, const ConsistencyMode* mode, Arena* arena,
      Clock* clock);
  ~TableGroup();

  int count() const { return static_cast<int>(tables_.size()); }

  // Calls `done` once, maybe before returning.
  void PullRows(const PullRowsChunk& request, PullRowsDone done);

  // Takes one piece; after an error the update must be abandoned.
  absl::Status Stage(const PushRowsChunk& chunk, const Payload& payload,
                     StagedPush* update);
  // Drops what was staged of an update that will not be whole.
  // REQUIRES: update.begun.
  void Abandon(const StagedPush& update) { open_.Drop(update); }
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
  // Those that belong to `version`; the newest rows without one. REQUIRES:
  // between `run` of Freeze and Release.
  std::vector<uint64_t> MarksAt(std::optional<uint64_t> version) const;
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
  TableGroup(ShardContext* context, const ConsistencyMode* mode, Arena* arena,
             Clock* clock);

  const EmbeddingTable& spec(int t) const {
    return context_.plan->declaration().table(t);
  }
  // Checks the lists of `request` and finds their ids; `unknown`: one is not
  // here any more.
  absl::StatusOr<std::vector<Ids>> Resolve(const PullRowsChunk& request,
                                           bool* unknown);
  // Begins a use and takes room; nullopt: it has to wait.
  absl::StatusOr<std::optional<RowReading>> BeginRead(const RowLookup& lookup)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Answers, and ends the use that BeginRead began.
  void Gather(const RowLookup& lookup, RowReading reading, uint64_t version);
  void EndUse();
  // Runs what became due, and lookups that can be answered now.
  void Finish(DueList& due, int64_t now_ns);

  // False when the update is not to be staged: it is a duplicate, or deferred
  // for want of room.
  absl::StatusOr<bool> TakeRoom(uint64_t bytes, StagedPush* update);
  void PushAsync(StagedPush update, PushRowsDone done);
  void MoveRows(const StagedPush& update, PushRowsReply* reply);
  absl::StatusOr<PushRowsReply> PushSync(StagedPush update, DueList& due);
  double RateOf(int t, const std::vector<TableRate>& rates) const;
  void TickClocks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  HotRows::ByTable FindHotRows();

  // For sync, as in server/ps/consistency/sync.h, with all tables for a block.
  void AddToSums(const StagedPush& update)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Advance(DueList& due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Exclusive. Returns what ends with Release: a checkpoint of the new version,
  // or Release itself.
  std::function<void()> Publish();

  // Constant after construction.
  ShardContext& context_;
  const ConsistencyMode& mode_;
  Arena* const arena_;
  Clock* const clock_;
  const ConsistencyKind kind_;
  std::vector<std::unique_ptr<Table>> tables_;

  const std::shared_ptr<AnswerBudget> answers_;
  IdListCache lists_;
  OpenPushes open_;
  HotRows hot_;
  std::vector<std::atomic<uint64_t>> rows_looked_up_;  // by table
  std::vector<std::atomic<uint64_t>> rows_updated_;

  mutable Mutex mutex_;  // protects all below
  // `early` has updates that are not in sums_ yet.
  UnitOrder<StagedPush> unit_ ABSL_GUARDED_BY(mutex_);
  RowUses uses_ ABSL_GUARDED_BY(mutex_);
  Parking<RowLookup> parked_ ABSL_GUARDED_BY(mutex_);
  // Async updates that came while rows were frozen.
  std::vector<std::function<void()>> held_ ABSL_GUARDED_BY(mutex_);
  struct FreezeRequest {
    std::optional<uint64_t> version;
    std::function<void()> run;
    std::function<void(absl::Status)> refused;
  };
  std::optional<FreezeRequest> freeze_ ABSL_GUARDED_BY(mutex_);

  // Sync: the step under way.
  std::optional<std::vector<TableRate>> first_rates_ ABSL_GUARDED_BY(mutex_);
  double weight_ ABSL_GUARDED_BY(mutex_) = 0;
  // By table; added to under the lock, used by Publish alone after the last.
  std::vector<RowSums> sums_;
  // By table: before the last step, the rows that it moved. Changed by Publish
  // alone, read by lookups and checkpoints that it waits for.
  std::vector<RowsBefore> previous_;
  std::vector<uint64_t> previous_marks_ ABSL_GUARDED_BY(mutex_);
  uint64_t oldest_ ABSL_GUARDED_BY(mutex_);  // version that can be read
};

}  // namespace weir

#endif  // SERVER_PS_ROWS_TABLE_GROUP_H_
