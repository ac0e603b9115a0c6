// State that the blocks and tables of a shard share: counters, slots, the
// oldest version that sync can still read, the budget for contributions that
// wait.
//
// Threads: safe; every field synchronises itself.
#ifndef SERVER_PS_BLOCK_SHARD_CONTEXT_H_
#define SERVER_PS_BLOCK_SHARD_CONTEXT_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/metrics/histogram.h"
#include "server/ps/block/block_buffer.h"
#include "server/ps/block/out_of_order_budget.h"
#include "server/ps/plan/shard_plan.h"

namespace weir {

// Raises `*value` to at least `floor`.
inline void RaiseTo(std::atomic<uint64_t>* value, uint64_t floor) {
  uint64_t seen = value->load(std::memory_order_relaxed);
  while (seen < floor && !value->compare_exchange_weak(seen, floor)) {
  }
}

// A slot as SetSlots left it.
struct SlotState {
  std::atomic<uint32_t> generation{0};
  std::atomic<uint64_t> process{0};  // holds the generation; 0: not known
  // What its holder shows (Sender); 0: nothing is asked for.
  std::atomic<uint64_t> capability_high{0};
  std::atomic<uint64_t> capability_low{0};
  // SetSlots has named it and it is not retired: it holds the clocks back.
  std::atomic<bool> live{false};
  std::atomic<bool> retired{false};
  // Sync: how many blocks' steps its contribution completed, and for how long
  // that contribution was the only one that lacked.
  std::atomic<uint64_t> came_last{0};
  std::atomic<int64_t> alone_ns{0};
};

struct ShardCounters {
  static constexpr size_t kStalenessBuckets = 64;

  std::atomic<uint64_t> accepted{0};
  std::atomic<uint64_t> duplicate{0};
  std::atomic<uint64_t> left_out{0};
  std::atomic<uint64_t> deferred{0};
  std::array<std::atomic<uint64_t>, kStalenessBuckets> staleness{};
  std::atomic<uint64_t> staleness_max{0};
  std::atomic<int64_t> waits_parked{0};
  TimeHistogram apply;  // of a chunk, with the wait for its block
  TimeHistogram park;   // of pulls of blocks that waited
  TimeHistogram snapshot;

  void RecordStaleness(uint64_t value) {
    staleness[std::min(value, uint64_t{kStalenessBuckets - 1})].fetch_add(
        1, std::memory_order_relaxed);
    RaiseTo(&staleness_max, value);
  }
};

class ShardContext {
 public:
  ShardContext(std::shared_ptr<const ShardPlan> shard_plan, Arena* block_arena)
      : plan(std::move(shard_plan)),
        arena(block_arena),
        slots(plan->slot_count()),
        oldest_readable(plan->declaration().base_version()),
        budget(plan->declaration().out_of_order_bytes()) {}

  // By slot, what SetSlots has said of retirement.
  void CopyRetired(std::vector<bool>* retired) const {
    for (size_t w = 0; w < slots.size(); ++w) {
      (*retired)[w] = slots[w].retired;
    }
  }

  const std::shared_ptr<const ShardPlan> plan;
  Arena* const arena;
  ShardCounters counters;
  std::vector<SlotState> slots;
  // Sync: versions below it are gone, on every block.
  std::atomic<uint64_t> oldest_readable;
  // What blocks and tables keep for later.
  OutOfOrderBudget budget;
};

}  // namespace weir

#endif  // SERVER_PS_BLOCK_SHARD_CONTEXT_H_
