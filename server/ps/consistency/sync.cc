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
  // Reads the payload and the plan alone: no lock yet.
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
  // I2: the sender has computed from this version, so it has seen it on every
  // shard, and nobody needs the one before any more, on any block.
  RaiseTo(&context_.oldest_readable, block.version);
  SyncStep& step = block.step;
  uint64_t& mark = block.marks[gradient.slot];
  if (push.index_in_step() < step.cursor ||
      step.early.count(push.index_in_step()) > 0) {
    ++mark;  // another slot computed it too: the first one counts
    return MakeReceipt(gradient, Receipt::DUPLICATE);
  }
  // A block with NaN takes part in the step without moving anything: the
  // cursor has to pass its contribution on every block.
  Receipt receipt = MakeReceipt(gradient, Receipt::ACCEPTED);
  if (bad_variable >= 0) {
    receipt.set_outcome(Receipt::LEFT_OUT);
    receipt.set_bad_variable(static_cast<uint32_t>(bad_variable));
    moved.assign(moved.size(), false);
  }
  if (!AnyMoved(moved)) {
    gradient.payload = Payload();
  }
  // I3. What is awaited never asks for room, so the step always goes on, and
  // in the end the contributions that were deferred find theirs.
  if (push.index_in_step() > Awaited(block)) {
    if (!context_.ReserveEarly(gradient.payload.bytes())) {
      return MakeReceipt(gradient, Receipt::DEFERRED);
    }
    ++mark;
    // The transport's memory is lent for this call only.
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
  // I6: a slot that came back is awaited again from here on. The block keeps a
  // copy, so that one push sees the same slots from beginning to end.
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
  // Every contribution of a step says the same; the first one's counts.
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
  // Named here: clang's lock analysis does not look into the lambda.
  float* const sums = step.sum.data();
  const std::vector<double>& weights = step.weights;
  VisitGradients(
      block.plan, moved, gradient, block.plan.range.count,
      [&](size_t i, int64_t element, const char* data, int64_t count) {
        // The first gradient of a segment sets the sum: the buffer holds the
        // values of an old version, and is not cleared before.
        if (weights[i] == 0.0) {
          SetScaled(sums + element, data, weight, count);
        } else {
          AddScaled(sums + element, data, weight, count);
        }
        return true;
      });
  for (size_t i = 0; i < moved.size(); ++i) {
    if (moved[i]) {
      step.weights[i] += weight;
    }
  }
}

void SyncMode::AdvanceTo(Block& block, uint32_t end) {
  std::map<uint32_t, SyncStep::Early>& early = block.step.early;
  uint32_t& cursor = block.step.cursor;
  // I1: one index after another, and a stop at the first that is missing. What
  // is here is taken before its slot is looked at: contributions that a slot
  // made before it retired count (I5).
  while (cursor < end) {
    if (!early.empty() && early.begin()->first == cursor) {
      const SyncStep::Early& next = early.begin()->second;
      const BlockGradient gradient = {0, &next.push, next.payload};
      AddAtCursor(block, gradient, next.moved);
      context_.early_bytes -= next.payload.bytes();
      early.erase(early.begin());
    } else if (block.retired[SlotOf(cursor)]) {
      // The mark moves as if the contribution had come; it never goes back.
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

// Slot w makes k_w = ceil((n - w) / W) contributions in each step, and its
// sequence number t * k_w + j stands for index j * W + w of step t.
uint64_t SyncMode::SequenceOf(const Block& block, uint32_t contribution) const {
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
  if (std::none_of(block.state.begin(), block.state.end(),
                   [](const BlockRef& slot) { return bool(slot); })) {
    before.state = block.state;  // I7: whole without any
  }
  block.previous = std::move(before);
  // I4. ApplySum writes the next values into the sum's buffer; the old values
  // live on in `previous` and with whoever still sends them.
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
  // Under the same lock: the block cannot leave the version in between.
  if (block.awaiting != nullptr && block.awaiting->version() == block.version) {
    SnapshotJob::Add(std::exchange(block.awaiting, nullptr), block.plan.index,
                     block.Freeze(), due);
  }
}

void SyncMode::ApplySum(Block& block) {
  SyncStep& step = block.step;
  // I4: state that a snapshot holds is replaced before it changes.
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
  // Segments that no contribution moved keep their values: `copy` takes them
  // along, up to the next moved segment or the end.
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
      // The window of the sum moves aside, since the new values take its
      // place: mean, values and state of one window stay in the cache.
      std::memcpy(mean, to + position,
                  static_cast<size_t>(count) * sizeof(float));
      // x / 1 is x, so a job with one contribution saves the pass.
      if (weight != 1.0f) {
        Divide(mean, weight, count);
      }
      copy(position, position + count);
      writer.CopyUpTo(position + count);
      float* state[Optimizer::kMaxStateArrays] = {};
      arrays.StateAt(segment, position, state);
      segment.optimizer->Apply(context, to + position, state,
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
  // I2. A version before `oldest_readable` is refused also where this block
  // still has it: its buffer may become the next sum at any moment.
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
