#include "server/ps/block/out_of_order_budget.h"

#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

using Room = OutOfOrderBudget::Room;

TEST(OutOfOrderBudgetTest, ARoomIsGivenBackOnce) {
  OutOfOrderBudget budget(100);
  {
    Room room;
    ASSERT_TRUE(budget.Take(60, &room));
    Room moved = std::move(room);
    EXPECT_EQ(budget.used(), 60u);
    moved.GiveBack();
    EXPECT_EQ(budget.used(), 0u);
    ASSERT_TRUE(budget.Take(30, &moved));
    Room other;
    ASSERT_TRUE(budget.Take(20, &other));
    other = std::move(moved);
  }
  EXPECT_EQ(budget.used(), 0u);
}

TEST(OutOfOrderBudgetTest, BlocksAndRowsShareTheBound) {
  OutOfOrderBudget budget(100);
  Room block;
  Room rows;
  ASSERT_TRUE(budget.Take(60, &block));
  EXPECT_FALSE(budget.TakeForRows(41, false, &rows));
  ASSERT_TRUE(budget.TakeForRows(40, false, &rows));
  EXPECT_EQ(budget.used(), 100u);
  Room another;
  EXPECT_FALSE(budget.Take(1, &another));
  EXPECT_EQ(budget.used(), 100u);
  block.GiveBack();
  EXPECT_TRUE(budget.Take(1, &another));
}

TEST(OutOfOrderBudgetTest, AwaitedRowsHaveRoomBeyondTheBound) {
  OutOfOrderBudget budget(100);
  Room block;
  Room rows;
  Room more;
  ASSERT_TRUE(budget.Take(100, &block));
  ASSERT_TRUE(budget.TakeForRows(500, true, &rows));
  EXPECT_EQ(budget.used(), 600u);
  // Over the bound nothing else has room, except what has no bytes.
  EXPECT_FALSE(budget.Take(1, &more));
  EXPECT_FALSE(budget.TakeForRows(1, false, &more));
  EXPECT_TRUE(budget.Take(0, &more));
  rows.GiveBack();
  EXPECT_EQ(budget.used(), 100u);
}

TEST(OutOfOrderBudgetTest, AnUpdateOfRowsThatIsAloneHasRoom) {
  OutOfOrderBudget budget(100);
  Room rows;
  ASSERT_TRUE(budget.TakeForRows(150, false, &rows));
  ASSERT_TRUE(budget.TakeForRows(150, false, &rows));  // its next piece
  EXPECT_EQ(budget.used(), 300u);
  Room other;
  EXPECT_FALSE(budget.TakeForRows(10, false, &other));
  rows.GiveBack();
  ASSERT_TRUE(budget.TakeForRows(10, false, &other));
  EXPECT_FALSE(budget.TakeForRows(150, false, &rows));  // it is not alone
  // The early contribution of a block has no such right.
  other.GiveBack();
  EXPECT_FALSE(budget.Take(150, &rows));
}

TEST(OutOfOrderBudgetTest, NothingIsLostBetweenThreads) {
  OutOfOrderBudget budget(50);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&budget, t] {
      for (int i = 0; i < 5000; ++i) {
        Room room;
        if (t % 2 == 0) {
          budget.Take(30, &room);
        } else {
          budget.TakeForRows(30, i % 7 == 0, &room);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(budget.used(), 0u);
}

}  // namespace
}  // namespace weir
