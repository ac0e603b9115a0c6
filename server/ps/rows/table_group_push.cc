// Pushes to the tables of a shard: staged as they come, applied whole.
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/failpoint.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "common/math/kernels.h"
#include "proto/job/learning_rate.h"
#include "proto/wire/value_encoding.h"
#include "server/ps/block/block_update.h"
#include "server/ps/block/must_finish.h"
#include "server/ps/rows/row_checks.h"
#include "server/ps/rows/table_group.h"

namespace weir {
absl::Status TableGroup::Stage(const PushRowsChunk& chunk,
                               const Payload& payload, StagedPush* update) {
  WEIR_RETURN_IF_ERROR(
      CheckPushPiece(context_.plan->declaration(), chunk, *update));
  if (!update->begun) {
    update->begun = true;
    update->sender = chunk.sender();
    update->push = chunk.push();
    open_.Begin(update);
  }
  update->rates.insert(update->rates.end(), chunk.rate().begin(),
                       chunk.rate().end());
  // An update that is already lost is not staged further, but its pieces are
  // still read: the client hears the outcome after its last one.
  if (chunk.list_size() == 0 || update->unknown_list || update->deferred) {
    return absl::OkStatus();
  }
  // The lists are checked and resolved as those of a pull are.
  PullRowsChunk lists;
  *lists.mutable_sender() = chunk.sender();
  *lists.mutable_list() = chunk.list();
  lists.mutable_want()->set_latest(true);
  WEIR_ASSIGN_OR_RETURN(const std::vector<Ids> ids,
                        Resolve(lists, &update->unknown_list));
  if (update->unknown_list) {
    open_.Drop(*update);
    return absl::OkStatus();
  }
  int64_t floats = 0;
  uint64_t bytes = 0;
  for (int i = 0; i < chunk.list_size(); ++i) {
    const Ids& list = ids[static_cast<size_t>(i)];
    const auto dim =
        static_cast<int>(spec(static_cast<int>(chunk.list(i).table())).dim());
    floats += static_cast<int64_t>(list->size()) * dim;
    bytes += StagedBytes(list, dim);
  }
  WEIR_ASSIGN_OR_RETURN(const bool room, TakeRoom(bytes, update));
  if (!room) {
    return absl::OkStatus();
  }
  const BlockRef gradients = BlockRef::Make(Arena::Heap(), floats);
  WEIR_RETURN_IF_ERROR(DecodeFloats(payload, chunk.encoding(),
                                    static_cast<size_t>(floats),
                                    gradients.data()));
  std::vector<StagedRows> staged;
  int64_t at = 0;
  for (int i = 0; i < chunk.list_size(); ++i) {
    const int t = static_cast<int>(chunk.list(i).table());
    StagedRows rows = {t, ids[static_cast<size_t>(i)], gradients, at};
    const int64_t size = static_cast<int64_t>(rows.ids->size()) * spec(t).dim();
    if (update->bad_table < 0 && !AllFinite(rows.data(), size)) {
      update->bad_table = t;
    }
    at += size;
    staged.push_back(std::move(rows));
  }
  return open_.Add(*update, std::move(staged));
}

absl::StatusOr<bool> TableGroup::TakeRoom(uint64_t bytes, StagedPush* update) {
  bool awaited = false;
  if (kind_ == ConsistencyKind::kSync) {
    const ContributionOrder& order = mode_.order();
    MutexLock lock(&mutex_);
    if (order.IsSettled(unit_, update->sender.slot(), update->push)) {
      // It stays a duplicate. If it had to wait for room to hear that, its
      // sender could not go on to what the tables await (I4).
      open_.Drop(*update);
      return false;
    }
    awaited = order.IsAwaited(unit_, update->push.index_in_step());
  }
  // I4: what is awaited always has room, or the step would never end.
  WEIR_ASSIGN_OR_RETURN(const bool room,
                        open_.TakeRoom(*update, bytes, awaited));
  update->deferred = !room;
  return room;
}

void TableGroup::PushRows(StagedPush update, PushRowsDone done) {
  if (absl::Status status = open_.Close(&update); !status.ok()) {
    done(std::move(status));
    return;
  }
  PushRowsReply reply;
  reply.mutable_receipt()->set_sequence(update.push.sequence());
  if (update.unknown_list) {
    reply.set_unknown_list(true);
    done(std::move(reply));
    return;
  }
  if (update.deferred) {
    reply.mutable_receipt()->set_outcome(Receipt::DEFERRED);
    done(std::move(reply));
    return;
  }
  Failpoint("ps.before_table_apply");
  if (kind_ != ConsistencyKind::kSync) {
    PushAsync(std::move(update), std::move(done));
    return;
  }
  DueList due;
  absl::StatusOr<PushRowsReply> answer = PushSync(std::move(update), due);
  Finish(due, kNoDeadlinePassed);
  done(std::move(answer));
}

double TableGroup::RateOf(int t, const std::vector<TableRate>& rates) const {
  for (const TableRate& rate : rates) {
    if (rate.table() == static_cast<uint32_t>(t)) {
      return rate.learning_rate();
    }
  }
  return LearningRate(spec(t).schedule(),
                      tables_[static_cast<size_t>(t)]->step());
}

void TableGroup::MoveRows(const StagedPush& update, PushRowsReply* reply) {
  for (int t = 0; t < count(); ++t) {
    std::vector<RowGradients> pieces;
    for (const StagedRows& rows : update.rows) {
      if (rows.table == t) {
        pieces.push_back({*rows.ids, rows.data()});
        rows_updated_[static_cast<size_t>(t)] += rows.ids->size();
      }
    }
    // The ids were checked, so this cannot fail. A table without gradients
    // takes its step as well: t counts contributions.
    const absl::StatusOr<UpdateReceipt> moved =
        table(t).Update(pieces, RateOf(t, update.rates));
    reply->set_rows_applied(reply->rows_applied() +
                            static_cast<uint64_t>(moved->applied));
    reply->set_rows_not_admitted(reply->rows_not_admitted() +
                                 static_cast<uint64_t>(moved->not_admitted));
  }
}

void TableGroup::PushAsync(StagedPush update, PushRowsDone done) {
  PushRowsReply reply;
  Receipt* const receipt = reply.mutable_receipt();
  *receipt = MakeCountedReceipt(update.push, update.bad_table);
  const bool moves = update.bad_table < 0 && WeightOf(update.push) > 0;
  absl::StatusOr<std::optional<uint64_t>> staleness = std::nullopt;
  {
    MutexLock lock(&mutex_);
    if (!parked_.closed().ok()) {
      staleness = parked_.closed();
    } else if (!uses_.MayBegin()) {
      // Rows are frozen; Release runs it again, or Close.
      // Shared, because std::function wants to be copyable.
      auto kept = std::make_shared<StagedPush>(std::move(update));
      held_.push_back([this, kept, done = std::move(done)] {
        PushAsync(std::move(*kept), done);
      });
      return;
    } else {
      staleness = ContributionOrder::Admit(unit_, update.sender.slot(),
                                           update.push, moves);
    }
    if (staleness.ok() && staleness->has_value()) {
      // Mark, version and use in one step under the lock: a checkpoint that is
      // frozen afterwards waits for the use, so it has the mark and the rows
      // (I1).
      uses_.Begin();
      if (moves) {
        TickClocks();
      }
    }
  }
  const bool counts = staleness.ok() && staleness->has_value();
  // I5: the use, not the lock, keeps a checkpoint away.
  if (counts && moves) {
    const MustFinish whole("an update of rows");
    receipt->set_staleness(**staleness);
    context_.counters.RecordStaleness(**staleness);
    MoveRows(update, &reply);
  }
  if (staleness.ok() && !counts && Planted("rows.applies_again")) {
    MoveRows(update, &reply);
  }
  // Before the answer: its sender may push again at once.
  update.rows.clear();
  update.room.GiveBack();
  if (counts) {
    EndUse();
    if (kind_ == ConsistencyKind::kBoundedStaleness) {
      DueList due;
      Finish(due, kNoDeadlinePassed);  // a clock has moved
    }
  }
  if (!staleness.ok()) {
    done(staleness.status());
    return;
  }
  if (!counts) {
    *receipt = MakeReceipt(update.push, Receipt::DUPLICATE);
  }
  done(std::move(reply));
}

}  // namespace weir
