#include "server/ps/consistency/sync.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/status.h"
#include "common/math/kernels.h"
#include "server/ps/block/snapshot_job.h"

namespace weir {

absl::StatusOr<Receipt> SyncMode::Push(Block& block, Contribution contribution,
                                       DueList& due) {
  const ::weir::Push& push = *contribution.push;
  if (push.contribution() >= contributions_) {
    return absl::InvalidArgumentError(
        absl::StrCat("contribution ", push.contribution(), " of a step of ",
                     contributions_));
  }
  std::vector<bool> moved = MovedSegments(block.plan, contribution);
  const int bad_variable = FindNonFinite(block.plan, moved, contribution);

  MutexLock lock(&block.mutex);
  WEIR_ASSIGN_OR_RETURN(const bool next, IsNextItem(block, contribution));
  if (!next) {
    return MakeReceipt(contribution, Receipt::DUPLICATE);
  }
  if (push.base_version() < block.version) {
    // Its step is published: somebody else's result of it was counted.
    ++block.marks[contribution.slot];
    return MakeReceipt(contribution, Receipt::DUPLICATE);
  }
  if (push.base_version() != block.version) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot ", contribution.slot, " block ", block.plan.index,
                     " item ", push.item(), " is for version ",
                     push.base_version(), ", the block is at ", block.version));
  }
  RaiseTo(&context_.oldest_readable, block.version);
  SyncStep& step = block.step;
  uint64_t& mark = block.marks[contribution.slot];
  if (push.contribution() < step.cursor ||
      step.early.count(push.contribution()) > 0) {
    ++mark;  // another slot computed it too: the first one counts
    return MakeReceipt(contribution, Receipt::DUPLICATE);
  }
  Receipt receipt = MakeReceipt(contribution, Receipt::ACCEPTED);
  if (bad_variable >= 0) {
    receipt.set_outcome(Receipt::LEFT_OUT);
    receipt.set_bad_variable(static_cast<uint32_t>(bad_variable));
    moved.assign(moved.size(), false);
  }
  if (!AnyMoved(moved)) {
    contribution.payload = Payload();
  }
  if (push.contribution() > Awaited(block)) {
    if (!context_.ReserveEarly(contribution.payload.bytes())) {
      return MakeReceipt(contribution, Receipt::DEFERRED);
    }
    ++mark;
    contribution.payload.Keep();
    step.early[push.contribution()] = {push, std::move(moved),
                                       std::move(contribution.payload)};
  } else {
    ++mark;
    AdvanceTo(block, push.contribution());
    AddAtCursor(block, contribution, moved);
  }
  AdvanceAndPublish(block, due);
  return receipt;
}

void SyncMode::SlotsChanged(Block& block, DueList& due) {
  MutexLock lock(&block.mutex);
  for (size_t w = 0; w < block.retired.size(); ++w) {
    block.retired[w] = context_.slots[w].retired;
  }
  AdvanceAndPublish(block, due);
}

uint32_t SyncMode::Awaited(const Block& block) const {
  uint32_t m = block.step.cursor;
  while (m < contributions_ &&
         (block.retired[SlotOf(m)] || block.step.early.count(m) > 0)) {
    ++m;
  }
  return m;
}

void SyncMode::AddAtCursor(Block& block, const Contribution& contribution,
                           const std::vector<bool>& moved) {
  SyncStep& step = block.step;
  if (!step.first.has_value()) {
    step.first = *contribution.push;
  }
  ++step.cursor;
  if (!AnyMoved(moved)) {
    return;
  }
  if (!step.sum) {
    // I2: nobody may read `previous` any more; whoever still sends it keeps it.
    BlockRef& previous = block.previous.values;
    if (previous && previous.unique()) {
      step.sum = std::move(previous);
    } else {
      previous = BlockRef();
      step.sum = BlockRef::Make(context_.arena, block.values.elements());
    }
    block.previous = FrozenBlock();
  }
  const float weight = WeightOf(*contribution.push);
  // Named here: the lock is not seen inside the lambda.
  float* const sums = step.sum.data();
  const std::vector<double>& weights = step.weights;
  VisitGradients(
      block.plan, moved, contribution, block.plan.range.count,
      [&](size_t i, int64_t element, const char* data, int64_t count) {
        if (weights[i] == 0.0) {
          SetScaled(sums + element, data, weight, count);
        } else {
          AddScaled(sums + element, data, weight, count);
        }
        return true;
      });
  for (size_t i = 0; i < moved.size(); ++i) {
    step.weights[i] += moved[i] ? weight : 0.0;
  }
}

void SyncMode::AdvanceTo(Block& block, uint32_t end) {
  std::map<uint32_t, SyncStep::Early>& early = block.step.early;
  uint32_t& cursor = block.step.cursor;
  while (cursor < end) {
    if (!early.empty() && early.begin()->first == cursor) {
      const SyncStep::Early& next = early.begin()->second;
      const Contribution contribution = {0, &next.push, next.payload};
      AddAtCursor(block, contribution, next.moved);
      context_.early_bytes -= next.payload.bytes();
      early.erase(early.begin());
    } else if (block.retired[SlotOf(cursor)]) {
      uint64_t& mark = block.marks[SlotOf(cursor)];
      mark = std::max(mark, ItemOf(block, cursor) + 1);
      ++cursor;
    } else {
      return;
    }
  }
}

void SyncMode::AdvanceAndPublish(Block& block, DueList& due) {
  SyncStep& step = block.step;
  if (!step.first.has_value() && step.early.empty()) {
    return;  // I5
  }
  AdvanceTo(block, contributions_);
  if (step.cursor == contributions_) {
    Publish(block, due);
  }
}

uint64_t SyncMode::ItemOf(const Block& block, uint32_t contribution) const {
  const uint64_t steps =
      block.version - context_.plan->declaration().base_version();
  const uint32_t slot = SlotOf(contribution);
  const uint32_t per_step = (contributions_ - slot + slots_ - 1) / slots_;
  return steps * per_step + contribution / slots_;
}

void SyncMode::Publish(Block& block, DueList& due) {
  SyncStep& step = block.step;
  FrozenBlock before = {block.version,
                        block.values,
                        {},
                        block.steps,
                        std::move(block.published_marks)};
  if (std::none_of(block.slots.begin(), block.slots.end(),
                   [](const BlockRef& slot) { return bool(slot); })) {
    before.slots = block.slots;  // I7: whole without any
  }
  block.previous = std::move(before);
  if (step.sum) {
    ApplySum(block);
    block.values = std::move(step.sum);
    step.sum = BlockRef();
  }
  ++block.version;
  step.cursor = 0;
  step.first.reset();
  step.weights.assign(step.weights.size(), 0.0);
  block.published_marks = block.marks;
  if (block.awaiting != nullptr && block.awaiting->version() == block.version) {
    SnapshotJob::Add(std::exchange(block.awaiting, nullptr), block.plan.index,
                     block.Freeze(), due);
  }
}

void SyncMode::ApplySum(Block& block) {
  SyncStep& step = block.step;
  BlockWriter writer(context_.arena);
  for (BlockRef& slot : block.slots) {
    writer.Open(&slot);
  }
  BlockArrays arrays(block);
  const float* const from = block.values.data();
  float* const to = step.sum.data();
  const auto copy = [&](int64_t begin, int64_t end) {
    if (end > begin) {
      std::memcpy(to + begin, from + begin,
                  static_cast<size_t>(end - begin) * sizeof(float));
    }
  };
  alignas(64) float mean[kWindowElements];
  int64_t position = 0;
  for (size_t i = 0; i < block.plan.segments.size(); ++i) {
    const SegmentPlan& segment = block.plan.segments[i];
    if (step.weights[i] == 0.0) {
      continue;
    }
    const StepContext context =
        StepContextFor(segment, block.steps[i], *step.first);
    ++block.steps[i];
    copy(position, segment.segment.block_offset);
    position = segment.segment.block_offset;
    const int64_t end = position + segment.segment.count;
    const auto weight = static_cast<float>(step.weights[i]);
    while (position < end) {
      const int64_t count = std::min(kWindowElements, end - position);
      std::memcpy(mean, to + position,
                  static_cast<size_t>(count) * sizeof(float));
      if (weight != 1.0f) {
        Divide(mean, weight, count);
      }
      copy(position, position + count);
      writer.CopyUpTo(position + count);
      float* slots[UpdateRule::kMaxSlots] = {};
      arrays.SlotsAt(segment, position, slots);
      segment.rule->Apply(context, to + position, slots,
                          reinterpret_cast<const char*>(mean), count);
      position += count;
    }
  }
  copy(position, block.plan.range.count);
  writer.CopyUpTo(block.plan.range.count);
}

absl::StatusOr<std::optional<PulledBlock>> SyncMode::Answer(
    const Block& block, const Want& want) const {
  if (want.when_case() != Want::kVersion || want.version() == block.version) {
    return Current(block);
  }
  if (want.version() > block.version) {
    return std::nullopt;
  }
  if (block.HasPrevious(want.version()) &&
      want.version() >= context_.oldest_readable) {
    return PulledBlock{block.plan.index, want.version(), false,
                       block.previous.values};
  }
  return absl::AbortedError(
      absl::StrCat("block ", block.plan.index, ": version ", want.version(),
                   " is gone, the newest is ", block.version));
}

}  // namespace weir
