// Pushes to the tables of a shard: staged as they come, applied whole.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/failpoint.h"
#include "common/base/status.h"
#include "common/math/kernels.h"
#include "proto/job/learning_rate.h"
#include "proto/wire/value_encoding.h"
#include "server/ps/block/block_update.h"
#include "server/ps/rows/row_checks.h"
#include "server/ps/rows/table_group.h"

namespace weir {
namespace {

// A time that no deadline has passed: Finish looks at conditions alone.
constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

// `next`: AdmitAsync took the mark.
Receipt::Outcome OutcomeOf(bool next, const StagedPush& update) {
  if (!next) {
    return Receipt::DUPLICATE;
  }
  // One NaN leaves the whole update out (I1), with its mark moved, so that the
  // client does not bring it again.
  if (update.bad_table >= 0) {
    return Receipt::LEFT_OUT;
  }
  return Receipt::ACCEPTED;
}

}  // namespace

absl::Status TableGroup::Stage(const PushRowsChunk& chunk,
                               const Payload& payload, StagedPush* update) {
  WEIR_RETURN_IF_ERROR(
      CheckPushPiece(context_.plan->declaration(), chunk, *update));
  if (!update->begun) {
    update->begun = true;
    update->sender = chunk.sender();
    update->push = chunk.push();
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
  WEIR_RETURN_IF_ERROR(CheckPullRows(context_.plan->declaration(), lists));
  WEIR_ASSIGN_OR_RETURN(const std::vector<Ids> ids,
                        Resolve(lists, &update->unknown_list));
  if (update->unknown_list) {
    Drop(update);
    return absl::OkStatus();
  }
  int64_t floats = 0;
  for (int i = 0; i < chunk.list_size(); ++i) {
    floats += static_cast<int64_t>(ids[static_cast<size_t>(i)]->size()) *
              spec(static_cast<int>(chunk.list(i).table())).dim();
  }
  if (!TakeRoom(floats * static_cast<int64_t>(sizeof(float)), update)) {
    return absl::OkStatus();
  }
  const BlockRef gradients = BlockRef::Make(Arena::Heap(), floats);
  WEIR_RETURN_IF_ERROR(DecodeFloats(payload, chunk.encoding(),
                                    static_cast<size_t>(floats),
                                    gradients.data()));
  int64_t at = 0;
  for (int i = 0; i < chunk.list_size(); ++i) {
    const int t = static_cast<int>(chunk.list(i).table());
    StagedRows rows = {t, ids[static_cast<size_t>(i)], gradients, at};
    const int64_t size = static_cast<int64_t>(rows.ids->size()) * spec(t).dim();
    if (update->bad_table < 0 && !AllFinite(rows.data(), size)) {
      update->bad_table = t;
    }
    at += size;
    update->rows.push_back(std::move(rows));
  }
  return absl::OkStatus();
}

bool TableGroup::TakeRoom(int64_t bytes, StagedPush* update) {
  // I4. What a sync step awaits always has room, or the step would never end.
  // An update that is alone has room, too, or one that is larger than the whole
  // budget could never be pushed.
  bool awaited = false;
  if (kind_ == ConsistencyKind::kSync) {
    MutexLock lock(&mutex_);
    awaited = update->push.index_in_step() <= Awaited();
  }
  const auto most =
      static_cast<int64_t>(context_.plan->declaration().out_of_order_bytes());
  // Added before the comparison: two updates that come at once see each other.
  const int64_t before = staged_bytes_.fetch_add(bytes);
  const bool alone = before == update->bytes;
  update->bytes += bytes;
  if (awaited || alone || before + bytes <= most) {
    return true;
  }
  update->deferred = true;
  Drop(update);
  return false;
}

void TableGroup::Drop(StagedPush* update) {
  staged_bytes_ -= std::exchange(update->bytes, 0);
  update->rows.clear();
}

void TableGroup::PushRows(StagedPush update, PushRowsDone done) {
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
  Finish(due, kNever);
  done(std::move(answer));
}

absl::StatusOr<bool> TableGroup::IsNextSequence(
    const StagedPush& update) const {
  // I1, as for a block: see "Push identity" in docs/design_notes.md.
  const uint64_t mark = marks_[update.sender.slot()];
  if (update.push.sequence() > mark) {
    return absl::OutOfRangeError(absl::StrCat(
        "slot ", update.sender.slot(), " tables: expected sequence number ",
        mark, ", got ", update.push.sequence()));
  }
  return update.push.sequence() == mark;
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

absl::StatusOr<bool> TableGroup::AdmitAsync(const StagedPush& update,
                                            bool moves, Receipt* receipt) {
  WEIR_ASSIGN_OR_RETURN(const bool next, IsNextSequence(update));
  if (!next) {
    return false;
  }
  if (moves) {
    if (update.push.base_version() > version_) {
      return absl::InvalidArgumentError(
          absl::StrCat("tables: base_version ", update.push.base_version(),
                       " is ahead of version ", version_));
    }
    receipt->set_staleness(version_ - update.push.base_version());
    ++version_;
    TickClocks();
  }
  // Mark, version and use in one step under the lock: a checkpoint that is
  // frozen afterwards waits for the use, so it has the mark and the rows (I1).
  ++marks_[update.sender.slot()];
  ++uses_;
  return true;
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
  receipt->set_sequence(update.push.sequence());
  const bool moves = update.bad_table < 0 && WeightOf(update.push) > 0;
  absl::StatusOr<bool> next = false;
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) {
      next = closed_;
    } else if (!MayUse()) {
      // Rows are frozen; Release runs it again, or Close.
      // Shared, because std::function wants to be copyable.
      auto kept = std::make_shared<StagedPush>(std::move(update));
      held_.push_back([this, kept, done = std::move(done)] {
        PushAsync(std::move(*kept), done);
      });
      return;
    } else {
      next = AdmitAsync(update, moves, receipt);
    }
  }
  if (!next.ok()) {
    Drop(&update);
    done(next.status());
    return;
  }
  receipt->set_outcome(OutcomeOf(*next, update));
  receipt->set_bad_variable(
      static_cast<uint32_t>(std::max(update.bad_table, 0)));
  // I5: the use that AdmitAsync took, not the lock, keeps a checkpoint away.
  if (*next && moves) {
    context_.counters.RecordStaleness(receipt->staleness());
    MoveRows(update, &reply);
  }
  Drop(&update);
  if (*next) {
    Leave();
    if (kind_ == ConsistencyKind::kBoundedStaleness) {
      DueList due;
      Finish(due, kNever);  // a clock has moved
    }
  }
  done(std::move(reply));
}

}  // namespace weir
