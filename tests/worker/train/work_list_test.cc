#include "worker/train/work_list.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace weir {
namespace {

Grant MakeGrant(uint32_t slot, uint32_t slots, uint64_t total,
                uint32_t per_step = 0) {
  Grant grant;
  grant.mutable_sender()->set_slot(slot);
  grant.set_slot_count(slots);
  grant.set_contribution_count(total);
  grant.set_contributions_per_step(per_step);
  return grant;
}

TEST(WorkListTest, AsyncDealsWhatRemainsInTurn) {
  Grant grant = MakeGrant(1, 3, 10);
  grant.add_applied_range(2);
  grant.add_applied_range(5);  // remaining: 0 1 5 6 7 8 9
  const WorkList work = WorkList::Create(grant).value();
  ASSERT_EQ(work.contribution_count(), 2u);
  EXPECT_EQ(work.At(0).contribution, 1u);
  EXPECT_EQ(work.At(1).contribution, 7u);
}

TEST(WorkListTest, AsyncLeavesOutWhatUnevenSlotsHaveDone) {
  Grant grant = MakeGrant(1, 2, 10);
  grant.add_applied_range(0);
  grant.add_applied_range(2);
  Deal* const deal = grant.add_deal();
  deal->add_next(3);
  deal->add_next(1);  // remaining: 5 7 8 9
  const WorkList work = WorkList::Create(grant).value();
  ASSERT_EQ(work.contribution_count(), 2u);
  EXPECT_EQ(work.At(0).contribution, 7u);
  EXPECT_EQ(work.At(1).contribution, 9u);
  deal->set_next(1, 5);
  EXPECT_EQ(WorkList::Create(grant).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(WorkListTest, SyncCoversEveryContributionOnceForAnyNumberOfSlots) {
  constexpr uint64_t kTotal = 22;
  constexpr uint32_t kPerStep = 5;
  for (uint32_t slots = 1; slots <= 7; ++slots) {
    std::set<std::pair<uint64_t, uint32_t>> seen;
    std::set<uint64_t> contributions;
    for (uint32_t w = 0; w < slots; ++w) {
      Grant grant = MakeGrant(w, slots, kTotal, kPerStep);
      grant.set_base_version(100);
      const WorkList list = WorkList::Create(grant).value();
      for (uint64_t i = 0; i < list.contribution_count(); ++i) {
        const WorkUnit work = list.At(i);
        EXPECT_EQ(work.index % slots, w);
        EXPECT_TRUE(seen.insert({work.version, work.index}).second);
        const uint64_t number = (work.version - 100) * kPerStep + work.index;
        EXPECT_EQ(work.beyond_end, number >= kTotal);
        if (!work.beyond_end) {
          EXPECT_EQ(work.contribution, number);
          contributions.insert(number);
        }
        EXPECT_EQ(work.last_of_step, work.index + slots >= kPerStep);
      }
    }
    EXPECT_EQ(seen.size(), 25u);  // 5 steps of 5, the last one padded
    EXPECT_EQ(contributions.size(), kTotal);
  }
}

TEST(WorkListTest, SyncGoesOnWhereTheHistoryBegan) {
  Grant grant = MakeGrant(0, 1, 12, 4);
  grant.set_base_version(1);
  grant.add_applied_range(0);
  grant.add_applied_range(4);
  const WorkList work = WorkList::Create(grant).value();
  ASSERT_EQ(work.contribution_count(), 8u);
  EXPECT_EQ(work.At(0).contribution, 4u);
  EXPECT_EQ(work.At(0).version, 1u);
  EXPECT_EQ(work.At(7).contribution, 11u);
  EXPECT_EQ(work.At(7).version, 2u);
}

TEST(WorkListTest, RefusesAGrantThatContradictsItself) {
  EXPECT_EQ(WorkList::Create(MakeGrant(3, 3, 10)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir
