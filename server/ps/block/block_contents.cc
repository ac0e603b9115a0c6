#include "server/ps/block/block_contents.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/job/initializer.h"
#include "server/ps/optimizer/optimizer.h"

namespace weir {
namespace {

// Fills array k of the segment's optimizer as before its step 0.
void FillInitialState(const SegmentPlan& plan, size_t k, Block& block)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) {
  float* const state =
      block.state[plan.state_array[k]].data() + plan.segment.block_offset;
  std::fill_n(state, plan.segment.count, plan.optimizer->state()[k].initial);
}

// Whether the job that wrote a checkpoint kept array `name` for `variable`.
// Where it did not, because the group was frozen or had another optimizer, the
// array holds zeros, which stand for nothing.
bool WriterKept(const Declaration& writer, int variable,
                const std::string& name) {
  const uint32_t index = writer.variable(variable).group();
  if (index >= static_cast<uint32_t>(writer.group_size())) {
    return true;  // no ps has taken such a declaration
  }
  const Group& group = writer.group(static_cast<int>(index));
  if (group.frozen()) {
    return false;
  }
  const auto optimizer = CreateOptimizer(group.optimizer(), "optimizer");
  if (!optimizer.ok()) {
    return true;
  }
  const std::vector<StateSpec>& specs = (*optimizer)->state();
  return std::any_of(
      specs.begin(), specs.end(),
      [&name](const StateSpec& spec) { return spec.name == name; });
}

}  // namespace

void InitialiseBlock(const ShardPlan& plan, Arena* arena, Block& block) {
  // Zero first: padding between variables belongs to no segment, and its bits
  // are in checkpoints.
  const auto make = [&] {
    BlockRef ref = BlockRef::Make(arena, block.plan.range.count);
    std::memset(ref.data(), 0, ref.bytes());
    return ref;
  };
  block.values = make();
  for (size_t k = 0; k < block.state.size(); ++k) {
    if (block.plan.uses_state[k]) {
      block.state[k] = make();
    }
  }
  for (const SegmentPlan& plan_segment : block.plan.segments) {
    const Segment& segment = plan_segment.segment;
    // By the offset in the variable, not in the block: the values are the same
    // however the variable is cut into blocks and shards.
    FillInitial(plan.layout().variables()[segment.variable].init,
                plan.declaration().seed(), segment.variable,
                segment.variable_offset, segment.count,
                block.values.data() + segment.block_offset);
    if (plan_segment.optimizer == nullptr) {
      continue;
    }
    for (size_t k = 0; k < plan_segment.optimizer->state().size(); ++k) {
      FillInitialState(plan_segment, k, block);
    }
  }
}

absl::Status RestoreBlock(const ShardPlan& plan, Arena* arena,
                          CheckpointReader& reader, Block& block) {
  const FlatRange range = block.plan.range;
  block.values = BlockRef::Make(arena, range.count);
  WEIR_RETURN_IF_ERROR(reader.ReadFlat(kValuesArray, range.begin, range.count,
                                       block.values.data()));
  for (size_t k = 0; k < block.state.size(); ++k) {
    if (!block.plan.uses_state[k]) {
      continue;
    }
    // By name: an optimizer that keeps the same arrays may take them over,
    // whatever their order.
    const std::string array = absl::StrCat(kStatePrefix, plan.state_names()[k]);
    if (!reader.HasArray(array)) {
      return absl::InvalidArgumentError(
          absl::StrCat("checkpoint '", reader.directory(), "' has no array '",
                       array, "': another optimizer wrote it"));
    }
    block.state[k] = BlockRef::Make(arena, range.count);
    WEIR_RETURN_IF_ERROR(reader.ReadFlat(array, range.begin, range.count,
                                         block.state[k].data()));
  }
  for (size_t i = 0; i < block.steps.size(); ++i) {
    const SegmentPlan& plan_segment = block.plan.segments[i];
    const Segment& segment = plan_segment.segment;
    if (plan_segment.optimizer != nullptr) {
      const std::vector<StateSpec>& specs = plan_segment.optimizer->state();
      for (size_t k = 0; k < specs.size(); ++k) {
        if (!WriterKept(reader.manifest().declaration(), segment.variable,
                        specs[k].name)) {
          FillInitialState(plan_segment, k, block);
        }
      }
    }
    // Steps are counted by segment, and the checkpoint may have cut its
    // segments elsewhere: the reader finds the count for this range.
    WEIR_ASSIGN_OR_RETURN(
        block.steps[i],
        reader.StepCount(segment.variable, segment.variable_offset,
                         segment.count));
  }
  return absl::OkStatus();
}

absl::Status CheckSameVariables(const Layout& declared,
                                const CheckpointReader& reader) {
  const std::vector<VariableSpec>& ours = declared.variables();
  const std::vector<VariableSpec>& theirs = reader.layout().variables();
  const std::string where =
      absl::StrCat("checkpoint '", reader.directory(), "'");
  if (ours.size() != theirs.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, " has ", theirs.size(), " variables, the job ", ours.size()));
  }
  for (size_t v = 0; v < ours.size(); ++v) {
    if (ours[v].name != theirs[v].name || ours[v].shape != theirs[v].shape ||
        ours[v].kind != theirs[v].kind) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, " variable ", v, " is '", theirs[v].name, "' [",
          absl::StrJoin(theirs[v].shape, ","), "], the job's is '",
          ours[v].name, "' [", absl::StrJoin(ours[v].shape, ","), "]"));
    }
  }
  return absl::OkStatus();
}

}  // namespace weir
