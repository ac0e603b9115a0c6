// Which contributions count for a unit, once, and in which order.
//
// Place: the consistency modes ask it for blocks, TableGroup for the tables of
//   a shard. It decides and keeps the books (UnitOrder); it does no I/O, takes
//   no locks and never looks at a payload. The slot and the unit come with
//   every call: nothing here belongs to a connection.
//
// Terms (mark, cursor and early are those of unit_order.h)
//   n, W     the contributions of a sync step, and the slots of the job.
//            Contribution m of a step is owed by slot m mod W.
//   awaited  the first contribution of the step that is neither here nor
//            passed, or n.
//   passed   nobody will bring contribution m: its slot is retired. It counts
//            as left out, and the mark of the slot moves as if it had come.
//
// Invariants
//   I1. Sequence number i of a slot counts at most once, and only after i - 1
//       was settled. An error changes nothing.
//   I2. Sync: Next gives contributions in index order, whatever order they
//       came in, so the bits of a sum depend on the contributions alone.
//   I3. Sync: a contribution up to the awaited one is never kEarly, so a step
//       goes on without room for others (out_of_order_budget.h, I1).
//   I4. Sync: contributions are passed only in a step for which something else
//       came; when every slot is retired, no step ends. Contributions of a
//       retired slot that are already here count. So a slot that retires after
//       its last contribution leaves the same bits whenever the news arrives.
//   I5. Sync: a slot that comes back is awaited from its mark on.
// Threads: compatible; const, so that all units of a shard may share one. The
//   caller holds the lock of the unit.
// Errors: OUT_OF_RANGE      a sequence number was skipped; the message names
//                           the expected one.
//         INVALID_ARGUMENT  a version or an index in step that cannot be.
// See "Push identity" in docs/design_notes.md.
#ifndef SERVER_PS_CONSISTENCY_CONTRIBUTION_ORDER_H_
#define SERVER_PS_CONSISTENCY_CONTRIBUTION_ORDER_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "proto/ps.pb.h"
#include "server/ps/block/unit_order.h"

namespace weir {

class ContributionOrder {
 public:
  // What becomes of a contribution to a sync step.
  enum class Turn : int {
    kDuplicate,  // it counts no more; its mark has moved if that was due
    kNow,        // nothing is missing before it
    kEarly,      // others come first
  };

  ContributionOrder(uint32_t contributions, uint32_t slots,
                    uint64_t base_version)
      : contributions_(contributions),
        slots_(slots),
        base_version_(base_version) {}

  // Tells whether `push` of `slot` has the next sequence number. False means
  // that it is a duplicate.
  static absl::StatusOr<bool> IsNext(const UnitMarks& unit, uint32_t slot,
                                     const Push& push);

  // Async: takes the mark, and a version when the contribution `moves`
  // something. Returns the staleness, 0 if nothing moves; nullopt for a
  // duplicate, which takes nothing.
  static absl::StatusOr<std::optional<uint64_t>> Admit(UnitMarks& unit,
                                                       uint32_t slot,
                                                       const Push& push,
                                                       bool moves);

  // Sync: the turn of a contribution. kNow and kEarly change nothing yet.
  template <class Early>
  absl::StatusOr<Turn> TurnOf(UnitOrder<Early>& unit, uint32_t slot,
                              const Push& push) const {
    WEIR_ASSIGN_OR_RETURN(const bool next, IsNextOfStep(unit, slot, push));
    if (IsSettled(unit, slot, push)) {
      // The result of another slot counts, or that of an earlier process: so
      // this one is done.
      if (next) {
        ++unit.marks[slot];
      }
      return Turn::kDuplicate;
    }
    return IsAwaited(unit, push.index_in_step()) ? Turn::kNow : Turn::kEarly;
  }

  // Sync: whether `push` is a duplicate, now and for ever: its number was
  // taken, its step is published, or the contribution is here already.
  template <class Early>
  bool IsSettled(const UnitOrder<Early>& unit, uint32_t slot,
                 const Push& push) const {
    const uint32_t index = push.index_in_step();
    return push.sequence() < unit.marks[slot] ||
           push.base_version() < unit.version ||
           (push.base_version() == unit.version &&
            (index < unit.cursor || unit.early.count(index) > 0));
  }

  // Sync: whether nothing is missing before contribution `index` (I3).
  template <class Early>
  bool IsAwaited(const UnitOrder<Early>& unit, uint32_t index) const {
    uint32_t awaited = unit.cursor;
    while (awaited < contributions_ &&
           (unit.retired[SlotOf(awaited)] || unit.early.count(awaited) > 0)) {
      ++awaited;
    }
    return index <= awaited;
  }

  // Sync: takes the mark and keeps the contribution until Next gives it back,
  // which is at once if TurnOf said kNow. REQUIRES: TurnOf said no kDuplicate.
  template <class Early>
  void Keep(UnitOrder<Early>& unit, uint32_t slot, const Push& push,
            Early early) const {
    if (!Planted("order.early_unmarked") ||
        IsAwaited(unit, push.index_in_step())) {
      ++unit.marks[slot];
    }
    unit.early.emplace(push.index_in_step(), std::move(early));
  }

  // Sync: returns the contribution that comes next into the sum, and moves the
  // cursor behind it. nullopt when it is not here, or the step is complete.
  template <class Early>
  std::optional<Early> Next(UnitOrder<Early>& unit) const {
    if (!unit.begun && unit.early.empty()) {
      return std::nullopt;  // I4
    }
    for (; unit.cursor < contributions_; ++unit.cursor) {
      // What is here is taken before its slot is looked at (I4).
      const auto first = unit.early.begin();
      if (first != unit.early.end() && first->first == unit.cursor) {
        std::optional<Early> next = std::move(first->second);
        unit.early.erase(first);
        unit.begun = true;
        ++unit.cursor;
        return next;
      }
      const uint32_t slot = SlotOf(unit.cursor);
      if (!unit.retired[slot]) {
        break;  // I2: nobody overtakes the one that is missing
      }
      unit.marks[slot] =
          std::max(unit.marks[slot], SequenceOf(unit, unit.cursor) + 1);
    }
    return std::nullopt;
  }

  // Sync: whether every contribution of the step was taken or passed.
  bool StepIsComplete(const UnitMarks& unit) const {
    return unit.cursor == contributions_;
  }

  // Sync: begins the next step. REQUIRES: StepIsComplete.
  static void Publish(UnitMarks& unit) {
    ++unit.version;
    unit.cursor = 0;
    unit.begun = false;
    unit.published_marks = unit.marks;
  }

 private:
  uint32_t SlotOf(uint32_t index) const { return index % slots_; }
  // The sequence number with which the slot of contribution `index` brings it
  // to the step under way.
  uint64_t SequenceOf(const UnitMarks& unit, uint32_t index) const;
  // As IsNext; an error also for an index or a version that cannot be.
  absl::StatusOr<bool> IsNextOfStep(const UnitMarks& unit, uint32_t slot,
                                    const Push& push) const;

  const uint32_t contributions_;  // n
  const uint32_t slots_;          // W
  const uint64_t base_version_;
};

}  // namespace weir

#endif  // SERVER_PS_CONSISTENCY_CONTRIBUTION_ORDER_H_
