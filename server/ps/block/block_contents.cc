#include "server/ps/block/block_contents.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/job/initializer.h"

namespace weir {

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
    const std::vector<StateSpec>& specs = plan_segment.optimizer->state();
    for (size_t k = 0; k < specs.size(); ++k) {
      float* const state = block.state[plan_segment.state_array[k]].data() +
                           segment.block_offset;
      std::fill_n(state, segment.count, specs[k].initial);
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
  // Steps are counted by segment, and the checkpoint may have cut its segments
  // elsewhere: the reader finds the count for this range.
  for (size_t i = 0; i < block.steps.size(); ++i) {
    const Segment& segment = block.plan.segments[i].segment;
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
