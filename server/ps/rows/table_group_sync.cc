// Sync steps of a shard's tables: the order of server/ps/consistency/sync.cc,
// for rows. What that file says of marks, cursors and retired slots holds here.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "server/ps/block/block_update.h"
#include "server/ps/rows/table_group.h"

namespace weir {

absl::StatusOr<PushRowsReply> TableGroup::PushSync(StagedPush update,
                                                   DueList& due) {
  PushRowsReply reply;
  Receipt* const receipt = reply.mutable_receipt();
  receipt->set_sequence(update.push.sequence());
  const uint32_t contribution = update.push.index_in_step();
  if (contribution >= contributions_) {
    Drop(&update);
    return absl::InvalidArgumentError(absl::StrCat(
        "contribution ", contribution, " of a step of ", contributions_));
  }
  MutexLock lock(&mutex_);
  absl::StatusOr<bool> next = IsNextSequence(update);
  if (next.ok() && !closed_.ok()) {
    next = closed_;
  }
  if (next.ok() && *next && update.push.base_version() < version_) {
    // Its step is published: somebody else's result of it was counted.
    ++marks_[update.sender.slot()];
    next = false;
  }
  if (next.ok() && *next && update.push.base_version() != version_) {
    next = absl::InvalidArgumentError(
        absl::StrCat("slot ", update.sender.slot(), " tables sequence number ",
                     update.push.sequence(), " is for version ",
                     update.push.base_version(), ", they are at ", version_));
  }
  // Whatever is not kept gives its share of the budget back (I4).
  if (!next.ok() || !*next) {
    Drop(&update);
    if (!next.ok()) {
      return next.status();
    }
    receipt->set_outcome(Receipt::DUPLICATE);
    return reply;
  }
  // The blocks share it: whoever trains from this version of the rows has seen
  // it everywhere.
  RaiseTo(&context_.oldest_readable, version_);
  ++marks_[update.sender.slot()];
  if (contribution < cursor_ || early_.count(contribution) > 0) {
    Drop(&update);  // another slot computed it too: the first one counts
    receipt->set_outcome(Receipt::DUPLICATE);
    return reply;
  }
  receipt->set_outcome(Receipt::ACCEPTED);
  // With weight 0 it passes the cursor and moves nothing.
  if (update.bad_table >= 0) {
    receipt->set_outcome(Receipt::LEFT_OUT);
    receipt->set_bad_variable(static_cast<uint32_t>(update.bad_table));
    update.push.set_weight(0);
  }
  // Its room was taken as it was staged, so it never has to be deferred here.
  early_[contribution] = std::move(update);
  AdvanceAndPublish(due);
  return reply;
}

void TableGroup::SlotsChanged() {
  DueList due;
  {
    MutexLock lock(&mutex_);
    for (size_t w = 0; w < retired_.size(); ++w) {
      retired_[w] = context_.slots[w].retired;
    }
    if (kind_ == ConsistencyKind::kSync) {
      AdvanceAndPublish(due);
    }
  }
  Finish(due, std::numeric_limits<int64_t>::min());
}

uint32_t TableGroup::Awaited() const {
  uint32_t m = cursor_;
  while (m < contributions_ && (retired_[SlotOf(m)] || early_.count(m) > 0)) {
    ++m;
  }
  return m;
}

void TableGroup::AddAtCursor(const StagedPush& update) {
  if (!first_rates_.has_value()) {
    first_rates_ = update.rates;
  }
  ++cursor_;
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

void TableGroup::AdvanceTo(uint32_t end) {
  while (cursor_ < end) {
    if (!early_.empty() && early_.begin()->first == cursor_) {
      StagedPush next = std::move(early_.begin()->second);
      early_.erase(early_.begin());
      AddAtCursor(next);
      Drop(&next);
    } else if (retired_[SlotOf(cursor_)]) {
      uint64_t& mark = marks_[SlotOf(cursor_)];
      mark = std::max(mark, SequenceOf(cursor_) + 1);
      ++cursor_;
    } else {
      return;
    }
  }
}

void TableGroup::AdvanceAndPublish(DueList& due) {
  if ((!first_rates_.has_value() && early_.empty()) ||
      cursor_ == contributions_) {
    return;  // nothing came for this step, or it waits to be published
  }
  AdvanceTo(contributions_);
  // I2: rows move when the last use has left, never under a reader.
  if (cursor_ == contributions_) {
    exclusive_waiting_.push_back([this] { Publish(); });
    StartExclusive(due);
  }
}

uint64_t TableGroup::SequenceOf(uint32_t contribution) const {
  const uint64_t steps = version_ - context_.plan->declaration().base_version();
  const uint32_t slot = SlotOf(contribution);
  const uint32_t per_step = (contributions_ - slot + slots_ - 1) / slots_;
  return steps * per_step + contribution / slots_;
}

void TableGroup::Publish() {
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
  std::function<void()> frozen;
  {
    MutexLock lock(&mutex_);
    previous_version_ = version_;
    ++version_;
    TickClocks();
    cursor_ = 0;
    first_rates_.reset();
    weight_ = 0;
    // The checkpoint takes this step's turn over: still exclusive, so nothing
    // can move the rows of the version that it was told to write.
    if (freeze_.has_value() && freeze_->version == version_) {
      frozen = std::move(freeze_->run);
      freeze_.reset();
    }
  }
  if (frozen) {
    frozen();  // ends with Release
  } else {
    Release();
  }
}

}  // namespace weir
