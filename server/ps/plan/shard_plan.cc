#include "server/ps/plan/shard_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/job/initializer.h"
#include "proto/job/field_rules.h"
#include "proto/job/learning_rate.h"
#include "proto/wire/layout_io.h"
#include "server/ps/plan/table_plan.h"

namespace weir {
namespace {

absl::StatusOr<ConsistencyKind> KindOf(const Update& update) {
  switch (update.mode_case()) {
    case Update::kAsync:
      if (update.async().lock_free()) {
        return ConsistencyKind::kLockFree;
      }
      return ConsistencyKind::kAsync;
    case Update::kSync:
      // In a job file 0 stands for the number of workers.
      if (update.sync().contributions() == 0) {
        return InvalidField("update.sync.contributions", "0 is not >= 1");
      }
      return ConsistencyKind::kSync;
    case Update::kBoundedStaleness:
      return ConsistencyKind::kBoundedStaleness;
    case Update::MODE_NOT_SET:  // CheckFields refused it
      break;
  }
  return absl::InternalError("update has no mode");
}

// Checks each field, and what relates two of them.
absl::Status CheckDeclaration(const Declaration& declaration, uint32_t shard) {
  WEIR_RETURN_IF_ERROR(CheckFields(declaration, ""));
  if (shard >= declaration.shard_count()) {
    return absl::InvalidArgumentError(absl::StrCat("shard ", shard,
                                                   " is not below shard_count ",
                                                   declaration.shard_count()));
  }
  for (const Variable& variable : declaration.variable()) {
    if (variable.group() >= static_cast<uint32_t>(declaration.group_size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable '", variable.name(), "' is in group ",
                       variable.group(), " of ", declaration.group_size()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

ShardPlan::ShardPlan(Declaration declaration, Layout layout, int shard)
    : declaration_(std::move(declaration)),
      layout_(std::move(layout)),
      shard_(shard) {}

absl::StatusOr<std::shared_ptr<ShardPlan>> ShardPlan::Prepare(
    const Declaration& declaration, uint32_t shard) {
  WEIR_RETURN_IF_ERROR(CheckDeclaration(declaration, shard));
  WEIR_ASSIGN_OR_RETURN(Layout layout, LayoutFromDeclaration(declaration));
  WEIR_ASSIGN_OR_RETURN(const ConsistencyKind kind,
                        KindOf(declaration.update()));
  std::shared_ptr<ShardPlan> plan(
      new ShardPlan(declaration, std::move(layout), static_cast<int>(shard)));
  plan->kind_ = kind;
  WEIR_RETURN_IF_ERROR(CheckTables(declaration, plan->shard()));
  WEIR_RETURN_IF_ERROR(plan->MakeOptimizers());
  return plan;
}

absl::StatusOr<std::shared_ptr<const ShardPlan>> ShardPlan::Create(
    const Declaration& declaration, uint32_t shard, int64_t memory_bytes_max) {
  // Cheap checks first: no block is allocated for a declaration that cannot be,
  // and MakeBlocks, last of all, runs only when its blocks fit into memory.
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<ShardPlan> plan,
                        Prepare(declaration, shard));
  WEIR_RETURN_IF_ERROR(plan->CheckMemory(memory_bytes_max));
  plan->MakeBlocks();
  return plan;
}

absl::StatusOr<ShardMemory> ShardPlan::MemoryOf(const Declaration& declaration,
                                                uint32_t shard) {
  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<ShardPlan> plan,
                        Prepare(declaration, shard));
  WEIR_ASSIGN_OR_RETURN(ShardMemory memory, plan->MemoryWithoutState());
  memory.state = plan->StateBytes();
  return memory;
}

absl::Status ShardPlan::MakeOptimizers() {
  for (int g = 0; g < declaration_.group_size(); ++g) {
    const Group& group = declaration_.group(g);
    group_optimizers_.emplace_back();
    if (group.frozen()) {
      continue;
    }
    const std::string path = absl::StrCat("group[", g, "]");
    WEIR_ASSIGN_OR_RETURN(
        group_optimizers_.back(),
        CreateOptimizer(group.optimizer(), absl::StrCat(path, ".optimizer")));
    WEIR_RETURN_IF_ERROR(
        CheckLearningRate(group.schedule(), absl::StrCat(path, ".schedule")));
    for (const StateSpec& state : group_optimizers_.back()->state()) {
      StateArray(state.name);
    }
  }
  variable_rules_.resize(layout_.variables().size());
  for (size_t v = 0; v < variable_rules_.size(); ++v) {
    const VariableSpec& variable = layout_.variables()[v];
    WEIR_RETURN_IF_ERROR(ValidateInitializer(variable));
    if (variable.kind == VariableKind::kBuffer && variable.buffer_rate > 0) {
      variable_rules_[v] = CreateMovingAverage(variable.buffer_rate);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardMemory> ShardPlan::MemoryWithoutState() const {
  ShardMemory memory;
  memory.values = 4.0 * static_cast<double>(layout_.shard_elements(shard_));
  memory.saved =
      memory.values * (1.0 + static_cast<double>(state_names_.size()));
  if (kind_ == ConsistencyKind::kSync) {
    memory.sums = memory.values;
  }
  // 16 bytes for each slot are its two marks. The rest is the block itself:
  // 260 MiB were used by 2^18 blocks of 16 elements.
  memory.blocks = layout_.block_count(shard_) * (1024.0 + 16.0 * slot_count());
  for (int t = 0; t < declaration_.table_size(); ++t) {
    WEIR_ASSIGN_OR_RETURN(const TableOptions options,
                          OptionsOfTable(declaration_, t, shard_));
    memory.tables += static_cast<double>(options.small_bytes());
  }
  return memory;
}

double ShardPlan::StateBytes() {
  double bytes = 0.0;
  for (int b = 0; b < layout_.block_count(shard_); ++b) {
    const BlockPlan block = MakeBlock(b);
    bytes += 4.0 * static_cast<double>(block.range.count) *
             static_cast<double>(std::count(block.uses_state.begin(),
                                            block.uses_state.end(), true));
  }
  return bytes;
}

absl::Status ShardPlan::CheckMemory(int64_t memory_bytes_max) {
  WEIR_ASSIGN_OR_RETURN(const ShardMemory memory, MemoryWithoutState());
  double bytes = memory.total();
  // Blocks are looked at only where they fit.
  if (bytes <= static_cast<double>(memory_bytes_max)) {
    bytes += StateBytes();
  }
  if (bytes > static_cast<double>(memory_bytes_max)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "shard ", shard_, " needs at least ",
        static_cast<int64_t>(bytes / (1 << 20)), " MiB (values, ",
        state_names_.size(), " optimizer state arrays",
        memory.sums > 0 ? ", sums" : "", ", ", declaration_.table_size(),
        " empty tables), this ps may use ", memory_bytes_max / (1 << 20),
        "; add ps tasks"));
  }
  row_bytes_max_ =
      memory_bytes_max - static_cast<int64_t>(bytes - memory.tables);
  return absl::OkStatus();
}

BlockPlan ShardPlan::MakeBlock(int index) {
  BlockPlan block;
  block.index = index;
  block.range = layout_.block({shard_, index});
  block.uses_state.resize(state_names_.size());
  for (const Segment& segment : layout_.segments({shard_, index})) {
    const VariableSpec& variable = layout_.variables()[segment.variable];
    SegmentPlan plan;
    plan.segment = segment;
    plan.group = variable.group;
    // A buffer follows its own rate and no schedule; at rate 0 it has no
    // optimizer and never moves.
    if (variable.kind == VariableKind::kBuffer) {
      block.has_buffers = true;
      plan.optimizer = variable_rules_[segment.variable].get();
    } else if (group_optimizers_[variable.group] != nullptr) {
      plan.optimizer = group_optimizers_[variable.group].get();
      plan.schedule = &declaration_.group(variable.group).schedule();
      for (size_t k = 0; k < plan.optimizer->state().size(); ++k) {
        plan.state_array[k] = StateArray(plan.optimizer->state()[k].name);
        block.uses_state[plan.state_array[k]] = true;
      }
    }
    block.segments.push_back(plan);
  }
  return block;
}

void ShardPlan::MakeBlocks() {
  for (int b = 0; b < layout_.block_count(shard_); ++b) {
    blocks_.push_back(MakeBlock(b));
  }
}

// Two optimizers that keep an array of the same name share it: they never move
// the same segment, and each initialises its own segments.
int ShardPlan::StateArray(const std::string& name) {
  const auto it = std::find(state_names_.begin(), state_names_.end(), name);
  if (it == state_names_.end()) {
    state_names_.push_back(name);
    return static_cast<int>(state_names_.size()) - 1;
  }
  return static_cast<int>(it - state_names_.begin());
}

}  // namespace weir
