#include "server/ps/rows/answer_budget.h"

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

using Room = AnswerBudget::Room;

Sender Slot(uint32_t slot, uint32_t generation = 1) {
  Sender sender;
  sender.set_slot(slot);
  sender.set_generation(generation);
  return sender;
}

TEST(AnswerBudgetTest, ASenderHasItsShareAndNoMore) {
  const auto budget = std::make_shared<AnswerBudget>(100, 1000);
  Room first = budget->Take(Slot(0), 60);
  ASSERT_NE(first, nullptr);
  Room second = budget->Take(Slot(0), 40);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(budget->Take(Slot(0), 1), nullptr);
  EXPECT_NE(budget->Take(Slot(1), 100), nullptr);
  second.reset();
  EXPECT_NE(budget->Take(Slot(0), 40), nullptr);
}

TEST(AnswerBudgetTest, AllSendersTogetherHaveABoundButForTheFirstAnswer) {
  const auto budget = std::make_shared<AnswerBudget>(100, 150);
  const Room one = budget->Take(Slot(0), 100);
  const Room two = budget->Take(Slot(1), 50);
  EXPECT_EQ(budget->Take(Slot(1), 10), nullptr);
  // Whoever holds nothing is not kept waiting by those who do.
  const Room three = budget->Take(Slot(2), 70);
  EXPECT_NE(three, nullptr);
  EXPECT_EQ(budget->Take(Slot(2), 1), nullptr);
  EXPECT_EQ(budget->used(), 220);
}

TEST(AnswerBudgetTest, AnAnswerAboveTheShareHasRoomAlone) {
  const auto budget = std::make_shared<AnswerBudget>(10, 20);
  const Room large = budget->Take(Slot(0), 50);
  EXPECT_NE(large, nullptr);
  EXPECT_EQ(budget->Take(Slot(0), 1), nullptr);
}

TEST(AnswerBudgetTest, AllReadersAreOneSenderAndAGenerationIsItsOwn) {
  const auto budget = std::make_shared<AnswerBudget>(100, 1000);
  const Room reader = budget->Take(Slot(0, 0), 100);
  EXPECT_EQ(budget->Take(Slot(5, 0), 1), nullptr);
  const Room old = budget->Take(Slot(5, 1), 100);
  EXPECT_NE(budget->Take(Slot(5, 2), 100), nullptr);
}

TEST(AnswerBudgetTest, RoomComesBackOnAnyThreadAndAfterItsOwner) {
  auto budget = std::make_shared<AnswerBudget>(1 << 20, 1 << 20);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&budget, t] {
      for (int i = 0; i < 2000; ++i) {
        const Room room = budget->Take(Slot(t % 2), 8);
        EXPECT_NE(room, nullptr);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(budget->used(), 0);
  Room last = budget->Take(Slot(0), 8);
  budget.reset();
  last.reset();
}

}  // namespace
}  // namespace weir
