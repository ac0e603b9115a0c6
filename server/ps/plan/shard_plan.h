// The meaning of a declaration for one shard: checked once, then never changed.
//
// Place: Declare and Restore make one; Shard and the consistency modes read it.
//
// Terms
//   array        the values, or one state array, of the whole shard.
//   state array  is named by an optimizer: "m", "v", "momentum". Groups whose
//                optimizers use the same name share the array.
//
// Threads: immutable, safe.
// Errors: INVALID_ARGUMENT    a field of the declaration; the message names it.
//         RESOURCE_EXHAUSTED  the shard would not fit the memory given.
#ifndef SERVER_PS_PLAN_SHARD_PLAN_H_
#define SERVER_PS_PLAN_SHARD_PLAN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/layout.h"
#include "common/trace/trace.h"
#include "proto/ps.pb.h"
#include "server/ps/optimizer/optimizer.h"

namespace weir {

enum class ConsistencyKind : int {
  kAsync = 0,
  kLockFree = 1,
  kSync = 2,
  kBoundedStaleness = 3,
};

struct SegmentPlan {
  Segment segment;
  int group = 0;
  // Null when the values never move by a push: frozen, or buffer rate 0.
  const Optimizer* optimizer = nullptr;
  const Schedule* schedule = nullptr;  // null for buffers
  // For state array k of the optimizer: its index in ShardPlan::state_names().
  int state_array[Optimizer::kMaxStateArrays] = {};
};

struct BlockPlan {
  int index = 0;  // inside the shard
  FlatRange range;
  std::vector<SegmentPlan> segments;  // by offset
  std::vector<bool> uses_state;       // by state array
  bool has_buffers = false;
};

// What a shard takes before its first push, in bytes. In double: nothing here
// can overflow it, and a bound needs no last digit.
struct ShardMemory {
  double values = 0.0;
  double state = 0.0;   // state arrays, of the blocks that use them
  double sums = 0.0;    // sync: the sum of a step, which was the version before
  double blocks = 0.0;  // what comes with each block, with the slots' marks
  double tables = 0.0;  // of empty tables; rows come later, within their bounds
  // Not in memory: values and state in a checkpoint, where every state array is
  // whole and holds zeros for the blocks that do not use it.
  double saved = 0.0;

  double total() const { return values + state + sums + blocks + tables; }
};

class ShardPlan {
 public:
  // The bound of Declaration.out_of_order_bytes. Early contributions stay in
  // the memory of gRPC, which breaks streams off when its quota is used up
  // (PsServer::Options::wire_bytes_max), so they may use a part of that only.
  static constexpr uint64_t kOutOfOrderBytesMax = uint64_t{384} << 20;

  // `memory_bytes_max` bounds what the shard will allocate.
  static absl::StatusOr<std::shared_ptr<const ShardPlan>> Create(
      const Declaration& declaration, uint32_t shard, int64_t memory_bytes_max);
  // What that shard would take; it allocates none of it. Errors: as Create.
  static absl::StatusOr<ShardMemory> MemoryOf(const Declaration& declaration,
                                              uint32_t shard);

  const Declaration& declaration() const { return declaration_; }
  const Layout& layout() const { return layout_; }
  int shard() const { return shard_; }
  ConsistencyKind kind() const { return kind_; }
  int slot_count() const { return static_cast<int>(declaration_.slot_count()); }
  uint32_t contributions() const {
    return declaration_.update().sync().contributions();
  }
  uint32_t staleness_bound() const {
    return declaration_.update().bounded_staleness().bound();
  }
  const std::vector<BlockPlan>& blocks() const { return blocks_; }
  // What the rows of all tables may take beside the blocks, by Create's bound.
  int64_t row_bytes_max() const { return row_bytes_max_; }
  // State arrays, in the order of their first use.
  const std::vector<std::string>& state_names() const { return state_names_; }

 private:
  ShardPlan(Declaration declaration, Layout layout, int shard);
  absl::Status MakeOptimizers();
  // Makes everything but the blocks.
  static absl::StatusOr<std::shared_ptr<ShardPlan>> Prepare(
      const Declaration& declaration, uint32_t shard);
  absl::StatusOr<ShardMemory> MemoryWithoutState() const;
  // Cost: that of MakeBlocks.
  double StateBytes();
  absl::Status CheckMemory(int64_t memory_bytes_max);
  BlockPlan MakeBlock(int index);
  void MakeBlocks();
  int StateArray(const std::string& name);

  const Declaration declaration_;
  const Layout layout_;
  const int shard_;
  ConsistencyKind kind_ = ConsistencyKind::kAsync;
  std::vector<std::unique_ptr<Optimizer>> group_optimizers_;  // null: frozen
  std::vector<std::unique_ptr<Optimizer>> variable_rules_;    // moving buffers
  std::vector<std::string> state_names_;
  std::vector<BlockPlan> blocks_;
  int64_t row_bytes_max_ = 0;
};

// What a timeline says of one push that the shard applies, to a block or, as
// kTraceRows, to rows.
inline void DescribeApply(const ShardPlan& plan, uint32_t slot,
                          uint64_t sequence, uint32_t block,
                          TraceDetails* details) {
  details->Add("slot", slot);
  details->Add("sequence", sequence);
  if (block != kTraceRows) {
    details->Add("block", block);
  }
  details->Flow(TraceFlow::kPasses,
                TraceFlowOf(plan.declaration().history(), plan.shard(), slot,
                            sequence, block));
}

}  // namespace weir

#endif  // SERVER_PS_PLAN_SHARD_PLAN_H_
