#include "server/ps/block/block_update.h"

#include <atomic>
#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

// One block: "a" at element 0, "b" at 16, "still" at 32, with padding between.
std::shared_ptr<const ShardPlan> Plan() {
  return *ShardPlan::Create(
      ParseDeclaration(
          "variable { name: 'a' shape: 10 } variable { name: 'b' shape: 10 }"
          "variable { name: 'still' shape: 10 group: 1 }"
          "group { optimizer { sgd {} }"
          "        schedule { learning_rate: 0.5 warmup_steps: 4 } }"
          "group { frozen: true } update { async {} }"),
      0, int64_t{1} << 30);
}

Payload Ramp(const BlockPlan& plan) {
  std::vector<float> values(static_cast<size_t>(plan.range.count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i);
  }
  return MakePayload(values, /*piece_bytes=*/22);  // cuts elements
}

TEST(BlockUpdateTest, MovesWhatHasAnOptimizerAndWasNotLeftOut) {
  const auto plan = Plan();
  const BlockPlan& block = plan->blocks()[0];
  ASSERT_EQ(block.segments.size(), 3u);
  ::weir::Push push;
  const BlockGradient all = {0, &push, Ramp(block)};
  EXPECT_EQ(MovedSegments(block, all), (std::vector<bool>{true, true, false}));
  push.add_left_out(0);
  EXPECT_EQ(MovedSegments(block, all), (std::vector<bool>{false, true, false}));
  push.set_weight(0.0f);
  EXPECT_FALSE(AnyMoved(MovedSegments(block, all)));
  push.Clear();
  EXPECT_FALSE(AnyMoved(MovedSegments(block, {0, &push, Payload()})));
}

TEST(BlockUpdateTest, VisitsEveryMovedElementOnceInOrderAndInBounds) {
  const auto plan = Plan();
  const BlockPlan& block = plan->blocks()[0];
  ::weir::Push push;
  const BlockGradient gradient = {0, &push, Ramp(block)};
  std::vector<int64_t> seen;
  VisitGradients(
      block, {true, false, true}, gradient, 4,
      [&](size_t segment, int64_t element, const char* data, int64_t count) {
        EXPECT_NE(segment, 1u);
        EXPECT_GE(count, 1);
        EXPECT_LE(count, 4);
        for (int64_t i = 0; i < count; ++i) {
          float value = 0.0f;
          std::memcpy(&value, data + i * 4, sizeof(value));
          EXPECT_EQ(value, static_cast<float>(element + i));
          seen.push_back(element + i);
        }
        return true;
      });
  std::vector<int64_t> expected;
  for (const size_t s : {0, 2}) {
    const Segment& segment = block.segments[s].segment;
    for (int64_t i = 0; i < segment.count; ++i) {
      expected.push_back(segment.block_offset + i);
    }
  }
  EXPECT_EQ(seen, expected);

  int visits = 0;
  VisitGradients(block, {true, true, true}, gradient, 4,
                 [&](size_t, int64_t, const char*, int64_t) {
                   ++visits;
                   return false;
                 });
  EXPECT_EQ(visits, 1);
}

TEST(BlockUpdateTest, FindsNanInWhatMovesOnly) {
  const auto plan = Plan();
  const BlockPlan& block = plan->blocks()[0];
  std::vector<float> values(static_cast<size_t>(block.range.count), 1.0f);
  ::weir::Push push;
  const std::vector<bool> moved = {true, true, false};
  const auto find = [&] {
    return FindNonFinite(block, moved, {0, &push, MakePayload(values)});
  };
  EXPECT_EQ(find(), -1);
  const auto spoil = [&](size_t segment, float value) {
    values[static_cast<size_t>(block.segments[segment].segment.block_offset +
                               3)] = value;
  };
  spoil(2, std::nanf(""));
  EXPECT_EQ(find(), -1);  // it is frozen
  spoil(1, -INFINITY);
  EXPECT_EQ(find(), 1);
  spoil(0, std::nanf(""));
  EXPECT_EQ(find(), 0);  // the first one
  EXPECT_EQ(FindNonFinite(block, {false, false, false},
                          {0, &push, MakePayload(values)}),
            -1);
}

TEST(BlockUpdateTest, HyperParametersOfAPushReplaceTheSchedules) {
  const auto plan = Plan();
  const SegmentPlan& segment = plan->blocks()[0].segments[0];
  ::weir::Push push;
  Hyper* const other = push.add_hyper();
  other->set_group(1);
  other->set_learning_rate(9.0);
  const StepContext scheduled = StepContextFor(segment, 1, push);
  EXPECT_EQ(scheduled.step, 1u);
  // A warm-up of 4 steps to 0.5: another rate than at its end.
  EXPECT_GT(scheduled.learning_rate, 0.0);
  EXPECT_LT(scheduled.learning_rate, 0.5);
  EXPECT_EQ(StepContextFor(segment, 100, push).learning_rate, 0.5);
  EXPECT_FALSE(scheduled.weight_decay.has_value());

  Hyper* const own = push.add_hyper();
  own->set_group(0);
  own->set_weight_decay(0.25);
  // Only what the push names is replaced.
  EXPECT_EQ(StepContextFor(segment, 100, push).learning_rate, 0.5);
  EXPECT_EQ(StepContextFor(segment, 100, push).weight_decay, 0.25);
  own->set_learning_rate(0.0);
  EXPECT_EQ(StepContextFor(segment, 100, push).learning_rate, 0.0);
  own->set_momentum(0.75);
  EXPECT_EQ(StepContextFor(segment, 100, push).momentum, 0.75);
}

TEST(BlockUpdateTest, AWriterLeavesWhatOthersHoldAlone) {
  BlockRef mine = BlockRef::Make(Arena::Heap(), 8);
  for (int i = 0; i < 8; ++i) {
    mine.data()[i] = static_cast<float>(i);
  }
  float* const alone = mine.data();
  BlockWriter in_place(Arena::Heap());
  in_place.Open(&mine);
  in_place.Replace();
  EXPECT_FALSE(in_place.copying());
  EXPECT_EQ(mine.data(), alone);

  const BlockRef held = mine;
  BlockWriter writer(Arena::Heap());
  writer.Open(&mine);
  EXPECT_TRUE(writer.copying());
  EXPECT_EQ(mine.data(), held.data());
  writer.Replace();
  ASSERT_NE(mine.data(), held.data());
  writer.CopyUpTo(3);
  mine.data()[0] = 100.0f;
  writer.CopyUpTo(2);  // goes back: copies nothing again
  writer.CopyUpTo(8);
  EXPECT_EQ(mine.data()[0], 100.0f);
  EXPECT_EQ(mine.data()[7], 7.0f);
  EXPECT_EQ(held.data()[0], 0.0f);
}

TEST(BlockUpdateTest, AStepIsCountedForMovedSegmentsAlone) {
  const auto plan = Plan();
  std::atomic<int64_t> waits{0};
  Block block(&plan->blocks()[0], 0, 1, &waits);
  MutexLock lock(&block.mutex);
  const ::weir::Push push;
  std::ignore = TakeSteps(block, {true, false, false}, push);
  const std::vector<StepContext> contexts =
      TakeSteps(block, {true, true, false}, push);
  EXPECT_EQ(block.steps, (std::vector<uint64_t>{2, 1, 0}));
  // The context has t before the step.
  EXPECT_EQ(contexts[0].step, 1u);
  EXPECT_EQ(contexts[1].step, 0u);
}

}  // namespace
}  // namespace weir
