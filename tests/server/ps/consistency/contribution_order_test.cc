#include "server/ps/consistency/contribution_order.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

using Turn = ContributionOrder::Turn;
using Unit = UnitOrder<std::string>;

Push PushOf(uint64_t sequence, uint64_t base_version, uint32_t index) {
  Push push;
  push.set_sequence(sequence);
  push.set_base_version(base_version);
  push.set_index_in_step(index);
  return push;
}

// Keeps the contribution where its turn says so, and returns the turn.
Turn Bring(const ContributionOrder& order, Unit& unit, uint32_t slot,
           const Push& push) {
  const absl::StatusOr<Turn> turn = order.TurnOf(unit, slot, push);
  EXPECT_TRUE(turn.ok()) << turn.status();
  if (turn.ok() && *turn != Turn::kDuplicate) {
    order.Keep(unit, slot, push, std::to_string(push.index_in_step()));
  }
  return turn.value_or(Turn::kDuplicate);
}

// What Next gives now, one behind the other.
std::string TakeAll(const ContributionOrder& order, Unit& unit) {
  std::string taken;
  while (const std::optional<std::string> next = order.Next(unit)) {
    taken += *next;
  }
  return taken;
}

TEST(ContributionOrderTest, ASequenceNumberIsComparedWithTheSlotsOwnMark) {
  Unit unit("block 7", 0, 2);
  unit.marks = {3, 0};
  EXPECT_TRUE(*ContributionOrder::IsNext(unit, 0, PushOf(3, 0, 0)));
  EXPECT_FALSE(*ContributionOrder::IsNext(unit, 0, PushOf(2, 0, 0)));
  EXPECT_FALSE(*ContributionOrder::IsNext(unit, 0, PushOf(0, 0, 0)));
  EXPECT_TRUE(*ContributionOrder::IsNext(unit, 1, PushOf(0, 0, 0)));
  const absl::Status skipped =
      ContributionOrder::IsNext(unit, 0, PushOf(4, 0, 0)).status();
  EXPECT_EQ(skipped.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(skipped.message(),
            "slot 0 block 7: expected sequence number 3, got 4");
}

TEST(ContributionOrderTest, AsyncTakesTheMarkAndAVersionOfWhatMoves) {
  UnitMarks unit("tables", 5, 2);
  EXPECT_EQ(*ContributionOrder::Admit(unit, 1, PushOf(0, 3, 0), true), 2u);
  EXPECT_EQ(unit.version, 6u);
  EXPECT_EQ(unit.marks, (std::vector<uint64_t>{0, 1}));
  // A duplicate takes nothing.
  EXPECT_FALSE(
      ContributionOrder::Admit(unit, 1, PushOf(0, 3, 0), true)->has_value());
  // What moves nothing takes the mark alone, whatever its version.
  EXPECT_EQ(*ContributionOrder::Admit(unit, 1, PushOf(1, 99, 0), false), 0u);
  EXPECT_EQ(unit.version, 6u);
  EXPECT_EQ(unit.marks, (std::vector<uint64_t>{0, 2}));
  const auto ahead =
      ContributionOrder::Admit(unit, 1, PushOf(2, 7, 0), true).status();
  EXPECT_EQ(ahead.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ahead.message(), "tables: base_version 7 is ahead of version 6");
  EXPECT_EQ(unit.marks, (std::vector<uint64_t>{0, 2}));
}

TEST(ContributionOrderTest, GivesContributionsInIndexOrder) {
  std::mt19937 random(3);
  const ContributionOrder order(4, 4, 0);
  std::vector<uint32_t> slots = {0, 1, 2, 3};
  Unit unit("u", 0, 4);
  for (uint64_t step = 0; step < 20; ++step) {
    std::shuffle(slots.begin(), slots.end(), random);
    std::string taken;
    for (const uint32_t m : slots) {
      EXPECT_FALSE(order.StepIsComplete(unit));
      Bring(order, unit, m, PushOf(step, step, m));
      taken += TakeAll(order, unit);
    }
    EXPECT_EQ(taken, "0123");
    ASSERT_TRUE(order.StepIsComplete(unit));
    ContributionOrder::Publish(unit);
    EXPECT_EQ(unit.version, step + 1);
    EXPECT_EQ(unit.published_marks, std::vector<uint64_t>(4, step + 1));
  }
}

TEST(ContributionOrderTest, WhatIsAwaitedHasItsTurnNow) {
  const ContributionOrder order(4, 4, 0);
  Unit unit("u", 0, 4);
  EXPECT_EQ(Bring(order, unit, 1, PushOf(0, 0, 1)), Turn::kEarly);
  EXPECT_EQ(TakeAll(order, unit), "");
  EXPECT_FALSE(order.IsAwaited(unit, 2));
  unit.retired[0] = true;
  // 0 will be passed and 1 is here, so nothing is missing before 2.
  EXPECT_TRUE(order.IsAwaited(unit, 0));
  EXPECT_TRUE(order.IsAwaited(unit, 2));
  EXPECT_FALSE(order.IsAwaited(unit, 3));
  EXPECT_EQ(Bring(order, unit, 3, PushOf(0, 0, 3)), Turn::kEarly);
  EXPECT_EQ(Bring(order, unit, 2, PushOf(0, 0, 2)), Turn::kNow);
  EXPECT_EQ(TakeAll(order, unit), "123");
  EXPECT_TRUE(order.StepIsComplete(unit));
}

TEST(ContributionOrderTest, TheFirstResultOfAContributionCounts) {
  const ContributionOrder order(2, 2, 0);
  Unit unit("u", 0, 2);
  EXPECT_EQ(Bring(order, unit, 1, PushOf(0, 0, 1)), Turn::kEarly);
  // Kept, then taken: either way the second one is a duplicate that is settled.
  EXPECT_EQ(Bring(order, unit, 0, PushOf(0, 0, 1)), Turn::kDuplicate);
  EXPECT_EQ(unit.marks, (std::vector<uint64_t>{1, 1}));
  EXPECT_EQ(Bring(order, unit, 0, PushOf(1, 0, 0)), Turn::kNow);
  EXPECT_EQ(TakeAll(order, unit), "01");
  EXPECT_EQ(Bring(order, unit, 1, PushOf(1, 0, 0)), Turn::kDuplicate);
  EXPECT_EQ(unit.marks, (std::vector<uint64_t>{2, 2}));
  ContributionOrder::Publish(unit);
  // Its step is published.
  EXPECT_EQ(Bring(order, unit, 0, PushOf(2, 0, 0)), Turn::kDuplicate);
  EXPECT_EQ(unit.marks, (std::vector<uint64_t>{3, 2}));
  // The same push again: its mark has moved already.
  EXPECT_EQ(Bring(order, unit, 0, PushOf(2, 0, 0)), Turn::kDuplicate);
  EXPECT_EQ(unit.marks, (std::vector<uint64_t>{3, 2}));
}

TEST(ContributionOrderTest, ErrorsChangeNothing) {
  const ContributionOrder order(2, 2, 4);
  Unit unit("block 1", 4, 2);
  const auto refused = [&](const Push& push, absl::StatusCode code) {
    const absl::Status status = order.TurnOf(unit, 0, push).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(unit.marks, (std::vector<uint64_t>{0, 0}));
    return std::string(status.message());
  };
  EXPECT_EQ(refused(PushOf(0, 4, 2), absl::StatusCode::kInvalidArgument),
            "contribution 2 of a step of 2");
  refused(PushOf(1, 4, 0), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(refused(PushOf(0, 5, 0), absl::StatusCode::kInvalidArgument),
            "slot 0 block 1: sequence number 0 is for version 5, the newest is "
            "4");
}

TEST(ContributionOrderTest, ARetiredSlotIsPassedAndItsMarkMoves) {
  // Slots 0 and 1 owe two contributions a step, slot 2 one.
  const ContributionOrder order(5, 3, 10);
  Unit unit("u", 10, 3);
  unit.retired[0] = true;
  EXPECT_EQ(TakeAll(order, unit), "");  // I4: nothing came
  EXPECT_EQ(unit.marks[0], 0u);
  EXPECT_EQ(Bring(order, unit, 1, PushOf(0, 10, 1)), Turn::kNow);
  EXPECT_EQ(TakeAll(order, unit), "1");
  EXPECT_EQ(unit.marks[0], 1u);
  EXPECT_EQ(unit.cursor, 2u);  // not past slot 2, which still owes its own
  EXPECT_EQ(Bring(order, unit, 2, PushOf(0, 10, 2)), Turn::kNow);
  EXPECT_EQ(TakeAll(order, unit), "2");
  EXPECT_EQ(unit.marks[0], 2u);
  EXPECT_EQ(unit.cursor, 4u);
  EXPECT_EQ(Bring(order, unit, 1, PushOf(1, 10, 4)), Turn::kNow);
  EXPECT_EQ(TakeAll(order, unit), "4");
  ASSERT_TRUE(order.StepIsComplete(unit));
  ContributionOrder::Publish(unit);
  EXPECT_EQ(unit.marks, (std::vector<uint64_t>{2, 2, 1}));
  // I5: back again, it is awaited from its mark on.
  unit.retired[0] = false;
  EXPECT_EQ(Bring(order, unit, 1, PushOf(2, 11, 1)), Turn::kEarly);
  EXPECT_EQ(Bring(order, unit, 0, PushOf(2, 11, 0)), Turn::kNow);
}

TEST(ContributionOrderTest, WhatIsHereCountsThoughItsSlotRetired) {
  const ContributionOrder order(3, 3, 0);
  Unit unit("u", 0, 3);
  EXPECT_EQ(Bring(order, unit, 1, PushOf(0, 0, 1)), Turn::kEarly);
  unit.retired[1] = true;
  unit.retired[2] = true;
  EXPECT_EQ(TakeAll(order, unit), "");
  EXPECT_EQ(Bring(order, unit, 0, PushOf(0, 0, 0)), Turn::kNow);
  EXPECT_EQ(TakeAll(order, unit), "01");
  EXPECT_TRUE(order.StepIsComplete(unit));
  EXPECT_EQ(unit.marks, (std::vector<uint64_t>{1, 1, 1}));
}

TEST(ContributionOrderTest, InTheMiddleOfAStepTheVersionsMarksAreThoseBefore) {
  const ContributionOrder order(2, 2, 0);
  Unit unit("u", 0, 2);
  Bring(order, unit, 1, PushOf(0, 0, 1));
  EXPECT_EQ(unit.MarksOfVersion(), (std::vector<uint64_t>{0, 0}));
  Bring(order, unit, 0, PushOf(0, 0, 0));
  EXPECT_EQ(TakeAll(order, unit), "01");
  EXPECT_EQ(unit.MarksOfVersion(), (std::vector<uint64_t>{0, 0}));
  ContributionOrder::Publish(unit);
  EXPECT_EQ(unit.MarksOfVersion(), (std::vector<uint64_t>{1, 1}));
}

}  // namespace
}  // namespace weir
