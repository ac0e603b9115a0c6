// How many bytes of contributions a shard keeps for later: early contributions
// of blocks, and pushes of rows that are still coming in or early. All of them
// share one budget.
//
// Place: ShardContext has it. SyncMode takes room for blocks, TableGroup for
//   rows; whoever holds a Room gives it back by destroying it.
//
// Invariants
//   I1. What is awaited is never refused. So a step always goes on, whoever
//       holds the budget:
//       - A block's awaited contribution needs no room: it is added as it
//         comes, and nothing of it is kept.
//       - Rows are staged before their turn is known, so they always need
//         room. They take it beyond the bound when their contribution is the
//         awaited one of the tables. A duplicate is not staged.
//       - What is settled needs no room to be told so. So a slot hears of its
//         earlier contributions, whoever holds the budget.
//       - Let c be the smallest contribution, by (version, index in step), that
//         any unit of the job awaits. All smaller ones have been taken or
//         passed, so the slot that owes c has settled its earlier ones on every
//         unit, and sends c now. The unit that awaits c takes it, by the two
//         rules above. So the smallest one grows until the step is published.
//         A cursor that moves gives back the room of the early contributions
//         that it takes; therefore all are back at the end of a step, and what
//         was deferred finds its room, at the latest when it is awaited.
//   I2. Nobody waits for room while holding some: an update of rows that is
//       refused a part is dropped whole. So two updates that are staged at once
//       cannot block each other for ever.
//   I3. The sum stays within the bound, but for awaited rows, and for one
//       update of rows that is larger than the bound and has the budget alone.
// Threads: safe; a Room is compatible.
#ifndef SERVER_PS_BLOCK_OUT_OF_ORDER_BUDGET_H_
#define SERVER_PS_BLOCK_OUT_OF_ORDER_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <utility>

namespace weir {

class OutOfOrderBudget {
 public:
  // A part of the budget; the holder gives it back at its end.
  class Room {
   public:
    Room() = default;
    Room(Room&& other) noexcept
        : budget_(other.budget_), bytes_(std::exchange(other.bytes_, 0)) {}
    Room& operator=(Room&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Room() { GiveBack(); }

    void GiveBack();

   private:
    friend class OutOfOrderBudget;

    OutOfOrderBudget* budget_ = nullptr;
    uint64_t bytes_ = 0;
  };

  explicit OutOfOrderBudget(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Adds `bytes` to `room`. False, and nothing taken, when they do not fit.
  bool Take(uint64_t bytes, Room* room) { return TryTake(bytes, room, false); }

  // Does the same for rows, which have room also when they are awaited, or when
  // nobody else holds any: an update that is larger than the whole budget could
  // never be pushed otherwise.
  bool TakeForRows(uint64_t bytes, bool awaited, Room* room);

  uint64_t used() const { return used_; }

 private:
  bool TryTake(uint64_t bytes, Room* room, bool or_alone);

  const uint64_t bytes_max_;
  std::atomic<uint64_t> used_{0};
};

}  // namespace weir

#endif  // SERVER_PS_BLOCK_OUT_OF_ORDER_BUDGET_H_
