#include "server/ps/block/block_update.h"

#include <cstring>

#include "common/base/failpoint.h"
#include "common/math/kernels.h"
#include "proto/job/learning_rate.h"
#include "server/ps/block/gradient_reader.h"

namespace weir {

std::vector<bool> MovedSegments(const BlockPlan& plan,
                                const BlockGradient& gradient) {
  std::vector<bool> moved(plan.segments.size(), false);
  // With weight 0 an optimizer would still take a step of t, so the gradient is
  // left out rather than scaled to zero.
  if (gradient.payload.empty() || WeightOf(*gradient.push) == 0.0f) {
    return moved;
  }
  std::vector<uint32_t> left_out(gradient.push->left_out().begin(),
                                 gradient.push->left_out().end());
  std::sort(left_out.begin(), left_out.end());
  for (size_t i = 0; i < moved.size(); ++i) {
    const auto variable =
        static_cast<uint32_t>(plan.segments[i].segment.variable);
    moved[i] = plan.segments[i].optimizer != nullptr &&
               !std::binary_search(left_out.begin(), left_out.end(), variable);
  }
  return moved;
}

void VisitGradients(const BlockPlan& plan, const std::vector<bool>& moved,
                    const BlockGradient& gradient, int64_t count_max,
                    const GradientVisitor& visit) {
  GradientReader reader(gradient.payload);
  int64_t position = 0;
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const Segment& segment = plan.segments[i].segment;
    if (!moved[i]) {
      continue;
    }
    // Over padding and segments that do not move.
    reader.Skip(segment.block_offset - position);
    position = segment.block_offset;
    const int64_t end = segment.block_offset + segment.count;
    while (position < end) {
      const GradientReader::Run run =
          reader.Next(std::min(end - position, count_max));
      if (!visit(i, position, run.data, run.count)) {
        return;
      }
      position += run.count;
    }
  }
}

int FindNonFinite(const BlockPlan& plan, const std::vector<bool>& moved,
                  const BlockGradient& gradient) {
  // Only what moves counts: NaN in padding or a frozen variable does no harm.
  int variable = -1;
  if (AnyMoved(moved)) {
    VisitGradients(plan, moved, gradient, plan.range.count,
                   [&](size_t i, int64_t, const char* data, int64_t count) {
                     if (AllFinite(data, count)) {
                       return true;
                     }
                     variable = plan.segments[i].segment.variable;
                     return false;
                   });
  }
  return variable;
}

StepContext StepContextFor(const SegmentPlan& segment, uint64_t step,
                           const ::weir::Push& push) {
  StepContext context;
  context.step = step;
  // A buffer: its moving average knows no learning rate.
  if (segment.schedule == nullptr) {
    return context;
  }
  bool replaced = false;
  for (const Hyper& hyper : push.hyper()) {
    if (hyper.group() != static_cast<uint32_t>(segment.group)) {
      continue;
    }
    // The last one that names the group counts, as in a protobuf merge.
    if (hyper.has_learning_rate()) {
      context.learning_rate = hyper.learning_rate();
      replaced = true;
    }
    if (hyper.has_weight_decay()) {
      context.weight_decay = hyper.weight_decay();
    }
    if (hyper.has_momentum()) {
      context.momentum = hyper.momentum();
    }
  }
  if (!replaced) {
    context.learning_rate = LearningRate(*segment.schedule, step);
  }
  return context;
}

void BlockWriter::CopyUpTo(int64_t end) {
  if (end <= copied_) {
    return;
  }
  for (const Replaced& replaced : replaced_) {
    std::memcpy(replaced.place->data() + copied_,
                replaced.other.data() + copied_,
                static_cast<size_t>(end - copied_) * sizeof(float));
  }
  copied_ = end;
}

BlockArrays::BlockArrays(const Block& block) : values(block.values.data()) {
  for (const BlockRef& one : block.state) {
    state.push_back(nullptr);  // no segment of the block uses this array
    if (one) {
      state.back() = one.data();
    }
  }
}

void BlockArrays::StateAt(const SegmentPlan& segment, int64_t element,
                          float* out[Optimizer::kMaxStateArrays]) const {
  for (size_t k = 0; k < segment.optimizer->state().size(); ++k) {
    out[k] = state[segment.state_array[k]] + element;
  }
}

std::vector<StepContext> TakeSteps(Block& block, const std::vector<bool>& moved,
                                   const ::weir::Push& push) {
  std::vector<StepContext> contexts(moved.size());
  for (size_t i = 0; i < moved.size(); ++i) {
    if (moved[i]) {
      // The context has t before this step, as in optimizer.h: 0 first.
      contexts[i] =
          StepContextFor(block.plan.segments[i], block.steps[i], push);
      ++block.steps[i];
    }
  }
  return contexts;
}

void ApplyGradient(const BlockPlan& plan, const BlockArrays& arrays,
                   const std::vector<bool>& moved,
                   const std::vector<StepContext>& contexts,
                   const BlockGradient& gradient, BlockWriter& writer) {
  // While buffers are replaced, each window is copied just before it is
  // updated, while it is in the cache. Otherwise longer runs save calls.
  int64_t run_max = plan.range.count;
  if (writer.copying()) {
    run_max = kWindowElements;
  }
  VisitGradients(
      plan, moved, gradient, run_max,
      [&](size_t i, int64_t element, const char* data, int64_t count) {
        Failpoint("ps.mid_apply");
        writer.CopyUpTo(element + count);
        float* state[Optimizer::kMaxStateArrays] = {};
        arrays.StateAt(plan.segments[i], element, state);
        plan.segments[i].optimizer->Apply(contexts[i], arrays.values + element,
                                          state, data, count);
        return true;
      });
  // The elements behind the last moved segment.
  writer.CopyUpTo(plan.range.count);
}

}  // namespace weir
