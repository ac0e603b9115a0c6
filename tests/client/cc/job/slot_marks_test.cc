#include "client/cc/job/slot_marks.h"

#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

struct Said {
  uint64_t smallest = 0;
  uint64_t largest = 0;
  uint32_t generation = 1;
  bool retired = false;
};

// What shards say of slot 1; each of them says something else of slot 0.
SlotMarks MarksOf(const std::vector<Said>& shards) {
  SlotMarks marks(1);
  for (const Said& said : shards) {
    HelloReply hello;
    hello.add_slot()->set_next_sequence_max(99);
    hello.mutable_slot(0)->set_generation(99);
    SlotStatus* const status = hello.add_slot();
    status->set_slot(1);
    status->set_next_sequence_min(said.smallest);
    status->set_next_sequence_max(said.largest);
    status->set_generation(said.generation);
    status->set_retired(said.retired);
    marks.Add(hello.slot());
  }
  return marks;
}

constexpr Said kWithoutBlocks = {UINT64_MAX, 0};

TEST(SlotMarksTest, TheSmallestMarkOfAllShardsComesNext) {
  EXPECT_EQ(MarksOf({{3, 3}, {5, 5}}).next_sequence(), 3u);
  EXPECT_EQ(MarksOf({{5, 6}, {3, 7}}).next_sequence(), 3u);
}

TEST(SlotMarksTest, AContributionIsTornWithinAShardAndBetweenShards) {
  EXPECT_FALSE(MarksOf({{3, 3}, {3, 3}}).torn());
  EXPECT_TRUE(MarksOf({{3, 4}, {3, 3}}).torn());
  EXPECT_TRUE(MarksOf({{3, 3}, {4, 4}}).torn());
  EXPECT_TRUE(MarksOf({{4, 4}, {3, 3}}).torn());
}

TEST(SlotMarksTest, AShardWithoutBlocksDecidesNoMark) {
  for (const auto& shards :
       {std::vector<Said>{{5, 5}, kWithoutBlocks}, {kWithoutBlocks, {5, 5}}}) {
    EXPECT_EQ(MarksOf(shards).next_sequence(), 5u);
    EXPECT_FALSE(MarksOf(shards).torn());
    EXPECT_FALSE(MarksOf(shards).empty());
  }
  const SlotMarks none = MarksOf({kWithoutBlocks, kWithoutBlocks});
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.next_sequence(), 0u);
  EXPECT_FALSE(none.torn());
}

TEST(SlotMarksTest, AShardThatDoesNotKnowTheSlotExpectsItsFirst) {
  SlotMarks marks = MarksOf({{4, 4}});
  marks.Add(HelloReply().slot());
  EXPECT_EQ(marks.next_sequence(), 0u);
  EXPECT_TRUE(marks.torn());
}

TEST(SlotMarksTest, ASlotIsRetiredWhenEveryShardSaysSoOfItsGeneration) {
  EXPECT_FALSE(MarksOf({{0, 0, 2, true}, {0, 0, 2, false}}).RetiredIn(2));
  const SlotMarks older = MarksOf({{0, 0, 2, true}, {0, 0, 1, true}});
  EXPECT_EQ(older.generation(), 2u);
  EXPECT_FALSE(older.RetiredIn(2));
  EXPECT_FALSE(older.RetiredIn(1));
  const SlotMarks both = MarksOf({{0, 0, 2, true}, {0, 0, 2, true}});
  EXPECT_TRUE(both.RetiredIn(2));
  EXPECT_FALSE(both.RetiredIn(3));
  EXPECT_FALSE(MarksOf({{0, 0, 0, false}}).RetiredIn(0));
}

}  // namespace
}  // namespace weir
