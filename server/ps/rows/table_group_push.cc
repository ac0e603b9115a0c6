// Updates of a shard's tables: staged as they come, applied whole.
#include <algorithm>
#include <cmath>
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
#include "server/ps/rows/table_group.h"

namespace weir {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

}  // namespace

absl::Status TableGroup::CheckPiece(const PushRowsChunk& chunk,
                                    const StagedPush& update) const {
  const double weight = WeightOf(chunk.push());
  if (!std::isfinite(weight) || weight < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("weight ", weight, " is not a number >= 0"));
  }
  if (update.begun && (chunk.push().sequence() != update.push.sequence() ||
                       chunk.sender().slot() != update.sender.slot())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an update of slot ", update.sender.slot(), " sequence number ",
        update.push.sequence(), " goes on as slot ", chunk.sender().slot(),
        " sequence number ", chunk.push().sequence()));
  }
  if (update.rates.size() + static_cast<size_t>(chunk.rate_size()) >
      static_cast<size_t>(count())) {
    return absl::InvalidArgumentError(
        absl::StrCat("more rates than the ", count(), " tables of this job"));
  }
  for (const TableRate& rate : chunk.rate()) {
    if (rate.table() >= static_cast<uint32_t>(count()) ||
        !std::isfinite(rate.learning_rate()) || rate.learning_rate() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("rate of table ", rate.table(), " of ", count(), ": ",
                       rate.learning_rate(), "; it must be >= 0"));
    }
  }
  return absl::OkStatus();
}

absl::Status TableGroup::Stage(const PushRowsChunk& chunk,
                               const Payload& payload, StagedPush* update) {
  WEIR_RETURN_IF_ERROR(CheckPiece(chunk, *update));
  if (!update->begun) {
    update->begun = true;
    update->sender = chunk.sender();
    update->push = chunk.push();
  }
  update->rates.insert(update->rates.end(), chunk.rate().begin(),
                       chunk.rate().end());
  if (chunk.list_size() == 0 || update->unknown_list || update->deferred) {
    return absl::OkStatus();
  }
  PullRowsChunk lists;
  *lists.mutable_sender() = chunk.sender();
  *lists.mutable_list() = chunk.list();
  lists.mutable_want()->set_latest(true);
  WEIR_RETURN_IF_ERROR(CheckPullRows(lists));
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
  bool awaited = false;
  if (kind_ == ConsistencyKind::kSync) {
    MutexLock lock(&mutex_);
    awaited = update->push.index_in_step() <= Awaited();
  }
  const auto most =
      static_cast<int64_t>(context_.plan->declaration().out_of_order_bytes());
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
    // The ids were checked: it cannot fail.
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
  receipt->set_outcome(!*next                 ? Receipt::DUPLICATE
                       : update.bad_table < 0 ? Receipt::ACCEPTED
                                              : Receipt::LEFT_OUT);
  receipt->set_bad_variable(
      static_cast<uint32_t>(std::max(update.bad_table, 0)));
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
