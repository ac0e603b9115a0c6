#include "server/ps/consistency/sync.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/status.h"
#include "common/math/kernels.h"
#include "common/trace/trace.h"
#include "server/ps/block/gradient_reader.h"
#include "server/ps/block/must_finish.h"
#include "server/ps/block/snapshot_job.h"

namespace weir {
namespace {

// The mean gradient of a window, in `room` where it cannot stay in its place.
// `run` is the window of the sum, or of the step's only gradient.
const char* MeanOf(const GradientReader::Run& run, bool is_alone, float weight,
                   float* room) {
  if (!is_alone) {
    // The sum moves aside, since the new values take its place: mean, values
    // and state of one window stay in the cache.
    std::memcpy(room, run.data, static_cast<size_t>(run.count) * sizeof(float));
  } else if (weight == 1.0f) {
    return run.data;
  } else {
    SetScaled(room, run.data, weight, run.count);
  }
  if (weight != 1.0f) {  // x / 1 is x
    Divide(room, weight, run.count);
  }
  return reinterpret_cast<const char*>(room);
}

}  // namespace

absl::StatusOr<Receipt> SyncMode::Push(Block& block, BlockGradient gradient,
                                       DueList& due) {
  const ::weir::Push& push = *gradient.push;
  const auto slot = static_cast<uint32_t>(gradient.slot);
  // Reads the payload and the plan alone: no lock yet.
  std::vector<bool> moved = MovedSegments(block.plan, gradient);
  const int bad_variable = FindNonFinite(block.plan, moved, gradient);

  MutexLock lock(&block.mutex);
  WEIR_ASSIGN_OR_RETURN(const ContributionOrder::Turn turn,
                        order().TurnOf(block.order, slot, push));
  // I2: the sender has computed from this version, so it has seen it on every
  // shard, and nobody needs the one before any more, on any block.
  if (push.base_version() == block.order.version) {
    RaiseTo(&context_.oldest_readable, block.order.version);
  }
  if (turn == ContributionOrder::Turn::kDuplicate) {
    return MakeReceipt(push, Receipt::DUPLICATE);
  }
  // A block with NaN takes part in the step without moving anything: the
  // cursor has to pass its contribution on every block.
  if (bad_variable >= 0) {
    moved.assign(moved.size(), false);
  }
  EarlyGradient one = {push, std::move(moved), {}, {}};
  if (AnyMoved(one.moved)) {
    one.payload = std::move(gradient.payload);
  }
  if (turn == ContributionOrder::Turn::kEarly) {
    // I3. What is awaited never asks for room, so the step always goes on, and
    // in the end the contributions that were deferred find theirs.
    if (!context_.budget.Take(one.payload.bytes(), &one.room)) {
      return MakeReceipt(push, Receipt::DEFERRED);
    }
    // The transport's memory is lent for this call only.
    one.payload.Keep();
  }
  const MustFinish step("a sync step of a block");
  order().Keep(block.order, slot, push, std::move(one));
  const int64_t before_ns =
      std::exchange(block.newest_ns, gradient.received_ns);
  if (Advance(block, due)) {
    SlotState& last = context_.slots[slot];
    last.came_last.fetch_add(1, std::memory_order_relaxed);
    last.alone_ns.fetch_add(gradient.received_ns - before_ns,
                            std::memory_order_relaxed);
  }
  return MakeCountedReceipt(push, bad_variable);
}

void SyncMode::SlotsChanged(Block& block, DueList& due) {
  MutexLock lock(&block.mutex);
  // I6: a slot that came back is awaited again from here on. The block keeps a
  // copy, so that one push sees the same slots from beginning to end.
  context_.CopyRetired(&block.order.retired);
  const MustFinish step("a sync step of a block");
  Advance(block, due);
}

bool SyncMode::Advance(Block& block, DueList& due) {
  // I1, I5: in index order, and only as far as nothing is missing.
  while (std::optional<EarlyGradient> next = order().Next(block.order)) {
    // Every contribution of a step says the same; the first one's counts.
    if (!block.step.first.has_value()) {
      block.step.first = next->push;
    }
    // The last one, and none before it moves anything.
    if (order().StepIsComplete(block.order) && !block.step.sum) {
      Publish(block, *next, due);
      return true;
    }
    AddToSum(block, *std::move(next));
  }
  if (!order().StepIsComplete(block.order)) {
    return false;
  }
  Publish(block, EarlyGradient(), due);
  return true;
}

void SyncMode::MakeSum(Block& block) {
  // I2: nobody may read `previous` any more; whoever still sends it keeps it.
  BlockRef& previous = block.previous.values;
  if (previous && previous.unique()) {
    block.step.sum = std::move(previous);
  } else {
    previous = BlockRef();
    block.step.sum = BlockRef::Make(context_.arena, block.values.elements());
  }
  block.previous = FrozenBlock();
}

void SyncMode::AddToSum(Block& block, EarlyGradient next) {
  SyncStep& step = block.step;
  if (!AnyMoved(next.moved)) {
    return;
  }
  if (!step.sum) {
    MakeSum(block);
  }
  const float weight = WeightOf(next.push);
  // Named here: clang's lock analysis does not look into the lambda.
  float* const sums = step.sum.data();
  const std::vector<double>& weights = step.weights;
  const BlockGradient gradient = {0, &next.push, std::move(next.payload)};
  VisitGradients(
      block.plan, next.moved, gradient, block.plan.range.count,
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
  for (size_t i = 0; i < next.moved.size(); ++i) {
    if (next.moved[i]) {
      step.weights[i] += weight;
    }
  }
}

void SyncMode::Publish(Block& block, const EarlyGradient& alone, DueList& due) {
  const TraceSpan span("publish", [&](TraceDetails* details) {
    details->Add("block", block.plan.index);
  });
  SyncStep& step = block.step;
  if (AnyMoved(alone.moved)) {
    MakeSum(block);
  }
  FrozenBlock before = {block.order.version,
                        block.values,
                        {},
                        block.steps,
                        std::move(block.order.published_marks)};
  if (std::none_of(block.state.begin(), block.state.end(),
                   [](const BlockRef& slot) { return bool(slot); })) {
    before.state = block.state;  // I7: whole without any
  }
  block.previous = std::move(before);
  // I4. ApplySum writes the next values into the sum's buffer; the old values
  // live on in `previous` and with whoever still sends them.
  if (step.sum) {
    ApplySum(block, alone);
    block.values = std::move(step.sum);
    step.sum = BlockRef();
  }
  step.first.reset();
  step.weights.assign(step.weights.size(), 0.0);
  ContributionOrder::Publish(block.order);
  // Under the same lock: the block cannot leave the version in between.
  if (block.awaiting != nullptr &&
      block.awaiting->version() == block.order.version) {
    SnapshotJob::Add(std::exchange(block.awaiting, nullptr), block.plan.index,
                     block.Freeze(), due);
  }
}

void SyncMode::ApplySum(Block& block, const EarlyGradient& alone) {
  SyncStep& step = block.step;
  // I4: state that a snapshot holds is replaced before it changes.
  BlockWriter writer(context_.arena);
  for (BlockRef& one : block.state) {
    writer.Open(&one);
  }
  writer.Replace();
  BlockArrays arrays(block);
  const float* const from = block.values.data();
  float* const to = step.sum.data();
  const auto copy = [&](int64_t begin, int64_t end) {
    if (end > begin) {
      std::memcpy(to + begin, from + begin,
                  static_cast<size_t>(end - begin) * sizeof(float));
    }
  };
  const bool is_alone = AnyMoved(alone.moved);
  GradientReader reader(alone.payload);
  int64_t read = 0;  // elements that the reader has passed
  alignas(64) float room[kWindowElements];
  int64_t position = 0;
  // Segments that no contribution moved keep their values: `copy` takes them
  // along, up to the next moved segment or the end.
  for (size_t i = 0; i < block.plan.segments.size(); ++i) {
    const SegmentPlan& segment = block.plan.segments[i];
    if (is_alone ? !alone.moved[i] : step.weights[i] == 0.0) {
      continue;
    }
    const StepContext context =
        StepContextFor(segment, block.steps[i], *step.first);
    ++block.steps[i];
    copy(position, segment.segment.block_offset);
    position = segment.segment.block_offset;
    const int64_t end = position + segment.segment.count;
    auto weight = static_cast<float>(step.weights[i]);
    if (is_alone) {
      weight = WeightOf(alone.push);
      reader.Skip(position - read);
      read = end;
    }
    while (position < end) {
      GradientReader::Run run = {reinterpret_cast<const char*>(to + position),
                                 std::min(kWindowElements, end - position)};
      if (is_alone) {
        run = reader.Next(run.count);
      }
      const char* const gradient = MeanOf(run, is_alone, weight, room);
      copy(position, position + run.count);
      writer.CopyUpTo(position + run.count);
      float* state[Optimizer::kMaxStateArrays] = {};
      arrays.StateAt(segment, position, state);
      segment.optimizer->Apply(context, to + position, state, gradient,
                               run.count);
      position += run.count;
    }
  }
  copy(position, block.plan.range.count);
  writer.CopyUpTo(block.plan.range.count);
}

absl::StatusOr<std::optional<Readable>> SyncMode::CanRead(
    const UnitMarks& unit, uint64_t oldest, const Want& want) const {
  if (want.when_case() != Want::kVersion || want.version() == unit.version) {
    return Readable::kNow;
  }
  if (want.version() > unit.version) {
    return std::nullopt;
  }
  if (want.version() >= oldest) {  // I2
    return Readable::kPrevious;
  }
  return absl::AbortedError(
      absl::StrCat(unit.name, ": version ", want.version(),
                   " is gone, the newest is ", unit.version));
}

}  // namespace weir
