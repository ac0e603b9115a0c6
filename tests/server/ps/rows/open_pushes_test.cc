#include "server/ps/rows/open_pushes.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using absl::StatusCode;

StagedPush PushOf(uint32_t slot, uint64_t sequence = 0) {
  StagedPush push;
  push.sender.set_slot(slot);
  push.sender.set_generation(1);
  push.push.set_sequence(sequence);
  return push;
}

std::vector<StagedRows> OneList() {
  StagedRows rows;
  rows.ids = std::make_shared<const std::vector<uint64_t>>(1, 7);
  return {rows};
}

struct OpenPushesTest : testing::Test {
  OutOfOrderBudget budget{100};
  OpenPushes open{2, &budget, 60};
};

TEST_F(OpenPushesTest, APushKeepsItsRowsAndRoomUntilItIsClosed) {
  StagedPush push = PushOf(0);
  open.Begin(&push);
  ASSERT_TRUE(*open.TakeRoom(push, 20, false));
  ASSERT_TRUE(open.Add(push, OneList()).ok());
  ASSERT_TRUE(*open.TakeRoom(push, 20, false));
  ASSERT_TRUE(open.Add(push, OneList()).ok());
  EXPECT_TRUE(push.rows.empty());
  ASSERT_TRUE(open.Close(&push).ok());
  EXPECT_EQ(push.rows.size(), 2u);
  EXPECT_EQ(budget.used(), 40u);
  push.room.GiveBack();
  EXPECT_EQ(budget.used(), 0u);
  // It is not open any more.
  EXPECT_EQ(open.Add(push, OneList()).code(), StatusCode::kAborted);
}

TEST_F(OpenPushesTest, APushHoldsNoMoreThanItsBound) {
  StagedPush push = PushOf(0);
  open.Begin(&push);
  ASSERT_TRUE(*open.TakeRoom(push, 60, false));
  for (const bool awaited : {false, true}) {
    EXPECT_EQ(open.TakeRoom(push, 1, awaited).status().code(),
              StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(budget.used(), 60u);
}

TEST_F(OpenPushesTest, WithoutRoomNothingIsKept) {
  StagedPush mine = PushOf(0);
  StagedPush theirs = PushOf(1);
  open.Begin(&mine);
  open.Begin(&theirs);
  ASSERT_TRUE(*open.TakeRoom(mine, 60, false));
  ASSERT_TRUE(*open.TakeRoom(theirs, 40, false));
  ASSERT_TRUE(open.Add(theirs, OneList()).ok());
  EXPECT_FALSE(*open.TakeRoom(theirs, 20, false));
  EXPECT_EQ(budget.used(), 60u);
  // What is awaited has room beyond the budget, within the push's own bound.
  ASSERT_TRUE(*open.TakeRoom(theirs, 60, true));
  ASSERT_TRUE(open.Close(&theirs).ok());
  EXPECT_TRUE(theirs.rows.empty());
}

TEST_F(OpenPushesTest, ANewerPushOfTheSlotEndsTheOlderOne) {
  StagedPush older = PushOf(0, 3);
  open.Begin(&older);
  ASSERT_TRUE(*open.TakeRoom(older, 50, false));
  StagedPush newer = PushOf(0, 3);
  open.Begin(&newer);
  EXPECT_EQ(budget.used(), 0u);
  ASSERT_TRUE(*open.TakeRoom(newer, 30, false));
  EXPECT_EQ(open.TakeRoom(older, 1, true).status().code(),
            StatusCode::kAborted);
  EXPECT_EQ(open.Add(older, OneList()).code(), StatusCode::kAborted);
  EXPECT_EQ(open.Close(&older).code(), StatusCode::kAborted);
  open.Drop(older);  // drops nothing of the newer one
  EXPECT_EQ(budget.used(), 30u);
  open.Drop(newer);
  EXPECT_EQ(budget.used(), 0u);
}

}  // namespace
}  // namespace weir
