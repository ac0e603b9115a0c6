#include "server/ps/block/block.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

// One block of 64 values with one state array, of two slots, at version 3.
class BlockTest : public testing::Test {
 protected:
  BlockTest()
      : plan_(*ShardPlan::Create(
            ParseDeclaration("variable { name: 'a' shape: 64 } slot_count: 2 "
                             "group { optimizer { sgd { momentum: 0.9 } }"
                             "        schedule { learning_rate: 1 } }"
                             "update { sync { contributions: 2 } }"),
            0, int64_t{1} << 30)),
        block_(&plan_->blocks()[0], 3, 2, &waits_parked_) {}

  bool IsFreezing() {
    MutexLock lock(&block_.mutex);
    return block_.freezing;
  }
  static BlockRef Buffer() { return BlockRef::Make(Arena::Heap(), 64); }

  const std::shared_ptr<const ShardPlan> plan_;
  std::atomic<int64_t> waits_parked_{0};
  Block block_;
};

TEST_F(BlockTest, BeginsAtTheBaseVersionWithNothingCounted) {
  MutexLock lock(&block_.mutex);
  EXPECT_EQ(block_.order.version, 3u);
  EXPECT_EQ(block_.order.marks, (std::vector<uint64_t>{0, 0}));
  EXPECT_EQ(block_.steps, std::vector<uint64_t>{0});
  EXPECT_EQ(block_.state.size(), 1u);
  EXPECT_EQ(block_.resident_bytes(), 0);
}

TEST_F(BlockTest, AFrozenBlockKeepsTheBuffersThatItWasGiven) {
  MutexLock lock(&block_.mutex);
  block_.values = Buffer();
  block_.state[0] = Buffer();
  block_.order.marks = {5, 6};
  const FrozenBlock frozen = block_.Freeze();
  EXPECT_EQ(frozen.version, 3u);
  EXPECT_EQ(frozen.values.data(), block_.values.data());
  EXPECT_EQ(frozen.state[0].data(), block_.state[0].data());
  EXPECT_EQ(frozen.marks, block_.order.marks);
  // Whoever wants to write now has to replace them.
  EXPECT_FALSE(block_.values.unique());
  EXPECT_TRUE(block_.shared_with_snapshot);
}

TEST_F(BlockTest, InTheMiddleOfASyncStepTheMarksAreThoseOfTheVersion) {
  MutexLock lock(&block_.mutex);
  block_.order.marks = {5, 6};
  block_.order.published_marks = {4, 6};
  block_.order.cursor = 1;
  EXPECT_EQ(block_.Freeze().marks, block_.order.published_marks);
  // A contribution that came before its turn is not in the values either.
  block_.order.cursor = 0;
  block_.order.early.emplace(1, EarlyGradient());
  EXPECT_EQ(block_.Freeze().marks, block_.order.published_marks);
  block_.order.early.clear();
  EXPECT_EQ(block_.Freeze().marks, block_.order.marks);
}

TEST_F(BlockTest, FreezingWaitsForOpenClaims) {
  {
    MutexLock lock(&block_.mutex);
    block_.values = Buffer();
    block_.open_claims = 1;
  }
  uint64_t version = 0;
  std::thread freezer([&] {
    MutexLock lock(&block_.mutex);
    version = block_.Freeze().version;
  });
  while (!IsFreezing()) {
    std::this_thread::yield();
  }
  {
    // A claim ends like this; the freezer cannot be through before.
    MutexLock lock(&block_.mutex);
    ++block_.order.version;
    --block_.open_claims;
    block_.claims_changed.NotifyAll();
  }
  freezer.join();
  EXPECT_EQ(version, 4u);
  MutexLock lock(&block_.mutex);
  EXPECT_FALSE(block_.freezing);
}

TEST_F(BlockTest, ThePreviousVersionCanBeFrozenOnlyWithItsState) {
  MutexLock lock(&block_.mutex);
  EXPECT_FALSE(block_.CanFreezePrevious(0));  // no values: there is none
  EXPECT_EQ(block_.oldest_version(), 3u);
  block_.previous.version = 2;
  block_.previous.values = Buffer();
  EXPECT_EQ(block_.oldest_version(), 2u);
  EXPECT_FALSE(block_.CanFreezePrevious(2));
  block_.previous.state.resize(1);
  EXPECT_TRUE(block_.CanFreezePrevious(2));
  EXPECT_FALSE(block_.CanFreezePrevious(1));
}

TEST_F(BlockTest, CountsEachBufferOnce) {
  constexpr int64_t kBytes = 64 * sizeof(float);
  MutexLock lock(&block_.mutex);
  block_.values = Buffer();
  block_.state[0] = Buffer();
  EXPECT_EQ(block_.resident_bytes(), 2 * kBytes);
  block_.step.sum = Buffer();
  EXPECT_EQ(block_.resident_bytes(), 3 * kBytes);
  block_.previous.values = block_.values;  // the step moved nothing
  EXPECT_EQ(block_.resident_bytes(), 3 * kBytes);
  block_.previous.values = Buffer();
  EXPECT_EQ(block_.resident_bytes(), 4 * kBytes);
}

}  // namespace
}  // namespace weir
