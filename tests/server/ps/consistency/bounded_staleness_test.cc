#include "server/ps/consistency/bounded_staleness.h"

#include <chrono>

#include "gtest/gtest.h"
#include "tests/server/ps/consistency/consistency_contract.h"
#include "tests/server/ps/consistency/unit_contract.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

INSTANTIATE_TEST_SUITE_P(BoundedStaleness, ConsistencyContract,
                         testing::Values("bounded_staleness { bound: 2 }"));
INSTANTIATE_TEST_SUITE_P(BoundedStaleness, UnitContract,
                         OverUnits("bounded_staleness { bound: 2 }"));

Declaration Job(int bound) {
  return ParseDeclaration(
      "variable { name: 'a' shape: 64 } slot_count: 3 "
      "group { optimizer { sgd {} } schedule { learning_rate: 1 } }"
      "update { bounded_staleness { bound: " +
      std::to_string(bound) + " } }");
}

void PushContribution(StoreTester& ps, int slot, uint64_t sequence) {
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(slot, sequence, 0, 0), 1.0f).ok());
}

TEST(BoundedStalenessTest, AnswersWhileTheSlowestIsWithinTheBound) {
  for (const int bound : {0, 1, 5}) {
    StoreTester ps(Job(bound));
    for (int sequence = 0; sequence <= bound; ++sequence) {
      EXPECT_TRUE(ps.Pull(0, 0, LatestWant(sequence))->done);
      PushContribution(ps, 0, sequence);
    }
    const auto ahead = ps.Pull(0, 0, LatestWant(bound + 1));
    EXPECT_FALSE(ahead->done);
    EXPECT_EQ(ps.store->GetStatus().waits_parked(), 1u);
    PushContribution(ps, 1, 0);
    EXPECT_FALSE(ahead->done);  // slot 2 is still at 0
    PushContribution(ps, 2, 0);
    ASSERT_TRUE(ahead->done);
    EXPECT_EQ(ahead->answer->version, uint64_t(bound + 3));
    EXPECT_EQ(ps.store->GetStatus().waits_parked(), 0u);
  }
}

TEST(BoundedStalenessTest, ALeftOutContributionMovesTheClock) {
  StoreTester ps(Job(0));
  PushContribution(ps, 0, 0);
  PushContribution(ps, 1, 0);
  const auto ahead = ps.Pull(0, 0, LatestWant(1));
  EXPECT_FALSE(ahead->done);
  ASSERT_TRUE(ps.store->Push(ps.Chunk(2, 0, 0, 0), Payload()).ok());
  EXPECT_TRUE(ahead->done);
}

TEST(BoundedStalenessTest, RetiredSlotsDoNotHoldOthersBack) {
  StoreTester ps(Job(0));
  PushContribution(ps, 0, 0);
  PushContribution(ps, 1, 0);
  const auto ahead = ps.Pull(0, 0, LatestWant(1));
  EXPECT_FALSE(ahead->done);
  ASSERT_TRUE(ps.SetSlot(2, 1, true).ok());
  EXPECT_TRUE(ahead->done);
  EXPECT_TRUE(ps.store->Hello().slot(2).retired());
}

TEST(BoundedStalenessTest, SlotsNeverNamedDoNotHoldOthersBack) {
  StoreTester ps(Job(0), 0, /*activate=*/false);
  ASSERT_TRUE(ps.SetSlot(0, 1, false).ok());
  EXPECT_TRUE(ps.Pull(0, 0, LatestWant(0))->done);
  PushContribution(ps, 0, 0);
  EXPECT_TRUE(ps.Pull(0, 0, LatestWant(1))->done);
}

TEST(BoundedStalenessTest, AParkedPullEndsAtItsDeadline) {
  StoreTester ps(Job(0));
  PushContribution(ps, 0, 0);
  Want want = LatestWant(1);
  want.set_timeout_ms(100);
  const auto ahead = ps.Pull(0, 0, want);
  ps.clock.Advance(std::chrono::milliseconds(99));
  ps.store->ExpireWaits();
  EXPECT_FALSE(ahead->done);
  ps.clock.Advance(std::chrono::milliseconds(1));
  ps.store->ExpireWaits();
  ASSERT_TRUE(ahead->done);
  ASSERT_TRUE(ahead->answer.ok());
  EXPECT_TRUE(ahead->answer->not_yet);
  EXPECT_FALSE(ahead->answer->values);
}

}  // namespace
}  // namespace weir
