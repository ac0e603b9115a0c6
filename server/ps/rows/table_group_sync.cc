// Sync steps of a shard's tables.
#include <optional>
#include <utility>

#include "common/base/status.h"
#include "common/trace/trace.h"
#include "server/ps/block/block_update.h"
#include "server/ps/block/must_finish.h"
#include "server/ps/rows/table_group.h"

namespace weir {

absl::StatusOr<PushRowsReply> TableGroup::PushSync(StagedPush update,
                                                   DueList& due) {
  const ::weir::Push push = update.push;
  const uint32_t slot = update.sender.slot();
  PushRowsReply reply;
  MutexLock lock(&mutex_);
  WEIR_RETURN_IF_ERROR(parked_.closed());
  WEIR_ASSIGN_OR_RETURN(const ContributionOrder::Turn turn,
                        mode_.order().TurnOf(unit_, slot, push));
  // The blocks share it: whoever trains from this version of the rows has seen
  // it everywhere.
  if (push.base_version() == unit_.version) {
    RaiseTo(&context_.oldest_readable, unit_.version);
  }
  if (turn == ContributionOrder::Turn::kDuplicate) {
    *reply.mutable_receipt() = MakeReceipt(push, Receipt::DUPLICATE);
    return reply;
  }
  *reply.mutable_receipt() = MakeCountedReceipt(push, update.bad_table);
  // With weight 0 it passes the cursor and moves nothing.
  if (update.bad_table >= 0) {
    update.push.set_weight(0);
  }
  const MustFinish step("a sync step of rows");
  // Its room was taken as it was staged, so an early one is not deferred here.
  mode_.order().Keep(unit_, slot, push, std::move(update));
  Advance(due);
  return reply;
}

void TableGroup::SlotsChanged() {
  DueList due;
  {
    MutexLock lock(&mutex_);
    context_.CopyRetired(&unit_.retired);
    if (kind_ == ConsistencyKind::kSync) {
      const MustFinish step("a sync step of rows");
      Advance(due);
    }
  }
  Finish(due, kNoDeadlinePassed);
}

void TableGroup::AddToSums(const StagedPush& update) {
  if (!first_rates_.has_value()) {
    first_rates_ = update.rates;
  }
  const float weight = WeightOf(update.push);
  if (weight == 0.0f) {
    return;
  }
  // I2: added in index order; the weight counts for every row of the step.
  for (const StagedRows& rows : update.rows) {
    sums_[static_cast<size_t>(rows.table)].Add(*rows.ids, rows.data(), weight);
    rows_updated_[static_cast<size_t>(rows.table)] += rows.ids->size();
  }
  weight_ += weight;
}

void TableGroup::Advance(DueList& due) {
  if (mode_.order().StepIsComplete(unit_)) {
    return;  // it waits to be published
  }
  while (const std::optional<StagedPush> next = mode_.order().Next(unit_)) {
    AddToSums(*next);
  }
  // I2: rows move when the last use has left, never under a reader.
  if (mode_.order().StepIsComplete(unit_)) {
    uses_.Ask([this] { Publish()(); }, /*first=*/false, due);
  }
}

std::function<void()> TableGroup::Publish() {
  const TraceSpan span("publish rows");
  const MustFinish step("a sync step of rows");
  float weight = 0;
  std::vector<TableRate> rates;
  {
    MutexLock lock(&mutex_);
    weight = static_cast<float>(weight_);
    rates = first_rates_.value_or(rates);
  }
  // From here to the lock below nobody else looks at rows or sums.
  for (int t = 0; t < count(); ++t) {
    RowSums& sums = sums_[static_cast<size_t>(t)];
    RowsBefore& before = previous_[static_cast<size_t>(t)];
    if (weight == 0.0f) {  // every contribution was left out
      before.Take(table(t), {});
      continue;
    }
    // I3: set aside what this step is going to move.
    before.Take(table(t), sums.ids());
    if (weight != 1.0f) {
      sums.DivideBy(weight);
    }
    // The ids were checked as they came, so this cannot fail.
    (void)table(t).Update(sums.ids(),
                          reinterpret_cast<const char*>(sums.sums()),
                          RateOf(t, rates));
    sums.Clear();
  }
  MutexLock lock(&mutex_);
  oldest_ = unit_.version;
  previous_marks_ = unit_.published_marks;
  ContributionOrder::Publish(unit_);
  TickClocks();
  first_rates_.reset();
  weight_ = 0;
  // The checkpoint takes this step's turn over: still exclusive, so nothing
  // can move the rows of the version that it was told to write.
  if (freeze_.has_value() && freeze_->version == unit_.version) {
    return std::exchange(freeze_, std::nullopt)->run;
  }
  return [this] { Release(); };
}

}  // namespace weir
