#include "server/ps/consistency/sync.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/status.h"
#include "common/math/kernels.h"
#include "server/ps/block/snapshot_job.h"

namespace weir {

absl::StatusOr<Receipt> SyncMode::Push(Block& block, BlockGradient gradient,
                                       DueList& due) {
  const ::weir::Push& push = *gradient.push;
  if (push.index_in_step() >= contributions_) {
    return absl::InvalidArgumentError(
        absl::StrCat("contribution ", push.index_in_step(), " of a step of ",
                     contributions_));
  }
  std::vector<bool> moved = MovedSegments(block.plan, gradient);
  const int bad_variable = FindNonFinite(block.plan, moved, gradient);

  MutexLock lock(&block.mutex);
  WEIR_ASSIGN_OR_RETURN(const bool next, IsNextSequence(block, gradient));
  if (!next) {
    return MakeReceipt(gradient, Receipt::DUPLICATE);
  }
  if (push.base_version() < block.version) {
    // Its step is published: somebody else's result of it was counted.
    ++block.marks[gradient.slot];
    return MakeReceipt(gradient, Receipt::DUPLICATE);
  }
  if (push.base_version() != block.version) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot ", gradient.slot, " block ", block.plan.index,
                     " sequence number ", push.sequence(), " is for version ",
                     push.base_version(), ", the block is at ", block.version));
  }
  RaiseTo(&context_.oldest_readable, block.version);
  SyncStep& step = block.step;
  uint64_t& mark = block.marks[gradient.slot];
  if (push.index_in_step() < step.cursor ||
      step.early.count(push.index_in_step()) > 0) {
    ++mark;  // another slot computed it too: the first one counts
    return MakeReceipt(gradient, Receipt::DUPLICATE);
  }
  Receipt receipt = MakeReceipt(gradient, Receipt::ACCEPTED);
  if (bad_variable >= 0) {
    receipt.set_outcome(Receipt::LEFT_OUT);
    receipt.set_bad_variable(static_cast<uint32_t>(bad_variable));
    moved.assign(moved.size(), false);
  }
  if (!AnyMoved(moved)) {
    gradient.payload = Payload();
  }
  if (push.index_in_step() > Awaited(block)) {
    if (!context_.ReserveEarly(gradient.payload.bytes())) {
      return MakeReceipt(gradient, Receipt::DEFERRED);
    }
    ++mark;
    gradient.payload.Keep();
    step.early[push.index_in_step()] = {push, std::move(moved),
                                        std::move(gradient.payload)};
  } else {
    ++mark;
    AdvanceTo(block, push.index_in_step());
    AddAtCursor(block, gradient, moved);
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

void SyncMode::AddAtCursor(Block& block, const BlockGradient& gradient,
                           const std::vector<bool>& moved) {
  SyncStep& step = block.step;
  if (!step.first.has_value()) {
    step.first = *gradient.push;
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
  const float weight = WeightOf(*gradient.push);
  // Named here: the lock is not seen inside the lambda.
  float* const sums = step.sum.data();
  const std::vector<double>& weights = step.weights;
  VisitGradients(
      block.plan, moved, gradient, block.plan.range.count,
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
      const BlockGradient gradient = {0, &next.push, next.payload};
      AddAtCursor(block, gradient, next.moved);
      context_.early_bytes -= next.payload.bytes();
      early.erase(early.begin());
    } else if (block.retired[SlotOf(cursor)]) {
      uint64_t& mark = block.marks[SlotOf(cursor)];
      mark = std::max(mark, SequenceOf(block, cursor) + 1);
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

uint64_t SyncMode::SequenceOf(const Block& block, uint32_t gradient) const {
  const uint64_t steps =
      block.version - context_.plan->declaration().base_version();
  const uint32_t slot = SlotOf(gradient);
  const uint32_t per_step = (contributions_ - slot + slots_ - 1) / slots_;
  return steps * per_step + gradient / slots_;
}

void SyncMode::Publish(Block& block, DueList& due) {
  SyncStep& step = block.step;
  FrozenBlock before = {block.version,
                        block.values,
                        {},
                        block.steps,
                        std::move(block.published_marks)};
  if (std::none_of(block.state.begin(), block.state.end(),
                   [](const BlockRef& slot) { return bool(slot); })) {
    before.state = block.state;  // I7: whole without any
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
  for (BlockRef& one : block.state) {
    writer.Open(&one);
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
      float* slots[Optimizer::kMaxStateArrays] = {};
      arrays.StateAt(segment, position, slots);
      segment.optimizer->Apply(context, to + position, slots,
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
