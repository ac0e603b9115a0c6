#include "common/job/contribution_list.h"

#include <set>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/math/random.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using Ranges = std::vector<ContributionRange>;

ContributionList ListOf(const AppliedWork& applied, int64_t total) {
  absl::StatusOr<ContributionList> list =
      ContributionList::Create(applied, total);
  EXPECT_TRUE(list.ok()) << list.status().message();
  return list.ok() ? *std::move(list) : ContributionList();
}
ContributionList Make(const Ranges& applied, int64_t total) {
  return ListOf(AppliedWork{applied, {}}, total);
}
AppliedWork Applied(const ContributionList& list,
                    const std::vector<int64_t>& next) {
  const absl::StatusOr<AppliedWork> work = list.Applied(next);
  EXPECT_TRUE(work.ok()) << work.status().message();
  return work.value_or(AppliedWork());
}
// How many numbers a message has of it.
size_t Numbers(const AppliedWork& work) {
  size_t numbers = 2 * work.ranges.size();
  for (const std::vector<int64_t>& next : work.deals) {
    numbers += next.size();
  }
  return numbers;
}

// The same in a naive form: a set of numbers.
Ranges ToRanges(const std::set<int64_t>& numbers) {
  Ranges ranges;
  for (const int64_t number : numbers) {
    if (!ranges.empty() && ranges.back().end == number) {
      ++ranges.back().end;
    } else {
      ranges.push_back({number, number + 1});
    }
  }
  return ranges;
}

TEST(ContributionListTest, ANewJobHasEverythingLeft) {
  const ContributionList list = Make(Ranges(), 5);
  EXPECT_EQ(list.remaining_count(), 5);
  EXPECT_EQ(list.At(0), 0);
  EXPECT_EQ(list.At(4), 4);
  EXPECT_EQ(list.applied(), AppliedWork());
  EXPECT_EQ(list.ContributionCount(0, 2), 3);
  EXPECT_EQ(list.ContributionCount(1, 2), 2);
  EXPECT_EQ(list.ContributionAt(1, 2, 1), 3);
  EXPECT_EQ(list.ContributionCount(5, 7), 0);
}

TEST(ContributionListTest, AFinishedJobHasNothingLeft) {
  const ContributionList list = Make({{0, 3}, {3, 5}}, 5);
  EXPECT_EQ(list.remaining_count(), 0);
  EXPECT_EQ(list.applied().ranges, (Ranges{{0, 5}}));
  EXPECT_EQ(Applied(list, {0, 0}), list.applied());
}

TEST(ContributionListTest, JoinsRangesThatTouchAndDropsEmptyOnes) {
  EXPECT_EQ(Make({{1, 2}, {2, 2}, {2, 4}, {6, 7}}, 9).applied().ranges,
            (Ranges{{1, 4}, {6, 7}}));
}

TEST(ContributionListTest, NamesTheRangeThatDoesNotFit) {
  for (const Ranges& bad : {Ranges{{0, 2}, {1, 3}}, Ranges{{3, 4}, {0, 1}},
                            Ranges{{-1, 2}}, Ranges{{2, 1}}, Ranges{{8, 11}}}) {
    const auto list = ContributionList::Create({bad, {}}, 10);
    EXPECT_EQ(list.status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_NE(ContributionList::Create({{{8, 11}}, {}}, 10)
                .status()
                .message()
                .find("[8, 11)"),
            absl::string_view::npos);
  EXPECT_FALSE(ContributionList::Create({}, -1).ok());
}

TEST(ContributionListTest, NamesTheSlotWhoseContributionDoesNotExist) {
  const ContributionList list = Make({{0, 5}}, 10);
  const std::vector<int64_t> beyond = {3, 3};  // slot 1 has 2 contributions
  const auto applied = list.Applied(beyond);
  EXPECT_EQ(applied.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(applied.status().message().find("slot 1 of 2"),
            absl::string_view::npos);
  const std::vector<int64_t> negative = {-1, 0};
  EXPECT_FALSE(list.Applied(negative).ok());
  // The same of a deal that a peer or a file brings.
  for (const std::vector<int64_t>& bad :
       {beyond, negative, std::vector<int64_t>()}) {
    EXPECT_FALSE(ContributionList::Create({{{0, 5}}, {bad}}, 10).ok());
  }
  EXPECT_TRUE(ContributionList::Create({{{0, 5}}, {{3, 2}}}, 10).ok());
  EXPECT_FALSE(ContributionList::Create({{{0, 5}}, {{3, 2}, {1}}}, 10).ok());
}

TEST(ContributionListTest, AgreesWithASetOfNumbersOnRandomHistories) {
  RandomStream random(7);
  for (int round = 0; round < 2000; ++round) {
    const int64_t total = random.NextBelow(60);
    std::set<int64_t> applied;
    const uint32_t density = random.NextBelow(5);
    for (int64_t c = 0; c < total; ++c) {
      if (random.NextBelow(4) < density) {
        applied.insert(c);
      }
    }
    // Some histories follow one another, each with another number of slots.
    ContributionList list = Make(ToRanges(applied), total);
    ASSERT_EQ(list.applied().ranges, ToRanges(applied));
    for (int history = 0; history < 6; ++history) {
      std::vector<int64_t> remaining;
      for (int64_t c = 0; c < total; ++c) {
        if (applied.count(c) == 0) {
          remaining.push_back(c);
        }
      }
      ASSERT_EQ(list.remaining_count(), std::ssize(remaining));
      for (int64_t k = 0; k < std::ssize(remaining); ++k) {
        ASSERT_EQ(list.At(k), remaining[k]);
      }
      const int slots = 1 + static_cast<int>(random.NextBelow(7));
      std::vector<int64_t> next(slots);
      for (int w = 0; w < slots; ++w) {
        int64_t contributions = 0;
        for (int64_t e = w; e < std::ssize(remaining); e += slots) {
          ++contributions;
        }
        ASSERT_EQ(list.ContributionCount(w, slots), contributions);
        next[w] = random.NextBelow(static_cast<uint32_t>(contributions) + 1);
        for (int64_t i = 0; i < next[w]; ++i) {
          ASSERT_EQ(list.ContributionAt(w, slots, i), remaining[i * slots + w]);
          applied.insert(remaining[i * slots + w]);
        }
      }
      list = ListOf(Applied(list, next), total);
      ASSERT_EQ(list.applied_count(), std::ssize(applied));
    }
    if (list.remaining_count() == 0 && total > 0) {
      ASSERT_EQ(list.applied(), (AppliedWork{{{0, total}}, {}}));
    }
  }
}

TEST(ContributionListTest, UnevenSlotsAreKeptAsADeal) {
  const ContributionList list = Make({{0, 2}}, 10);
  // Slot 0 has done 2, 4, 6 and 8, and slot 1 has done 3.
  const AppliedWork work = Applied(list, {4, 1});
  EXPECT_EQ(work, (AppliedWork{{{0, 4}}, {{3, 0}}}));
  const ContributionList next = ListOf(work, 10);
  ASSERT_EQ(next.remaining_count(), 3);
  EXPECT_EQ(next.At(0), 5);
  EXPECT_EQ(next.At(2), 9);
  // A job may become longer while it is stopped.
  EXPECT_EQ(ListOf(work, 100).At(3), 10);
  // One slot is between the elements of the deal, and then behind them.
  EXPECT_EQ(Applied(next, {1}), (AppliedWork{{{0, 4}}, {{3, 0}, {1}}}));
  EXPECT_EQ(Applied(next, {2}), (AppliedWork{{{0, 9}}, {}}));
  EXPECT_EQ(Applied(ListOf(work, 100), {4}), (AppliedWork{{{0, 11}}, {}}));
}

// Eight slots, of which every second one has half the speed, and a restart now
// and then. As ranges that is four for each round in which the slow ones lag.
TEST(ContributionListTest, AnUnevenJobStaysSmall) {
  RandomStream random(8);
  AppliedWork work;
  int64_t done = 0;
  for (int history = 0; history < 200; ++history) {
    const ContributionList list = ListOf(work, kContributionsMax);
    ASSERT_EQ(list.applied_count(), done);
    std::vector<int64_t> next(8);
    const int64_t slow = 100000 + random.NextBelow(50000);
    for (size_t w = 0; w < next.size(); ++w) {
      next[w] = w % 2 == 0 ? 2 * slow + random.NextBelow(100) : slow;
      done += next[w];
    }
    work = Applied(list, next);
    ASSERT_LE(Numbers(work), 2u + 8u);
  }
  // Restarts that come before what the slow ones left is done cost a deal each.
  for (int history = 0; history < 100; ++history) {
    work = Applied(ListOf(work, kContributionsMax), {9, 1, 9, 1, 9, 1, 9, 1});
    ASSERT_LE(Numbers(work), 2u + 8u + (history + 1u) * 9u);
  }
  const ContributionList list = ListOf(work, kContributionsMax);
  work = Applied(list, {list.remaining_count()});
  EXPECT_EQ(work, (AppliedWork{{{0, kContributionsMax}}, {}}));
}

TEST(ContributionListTest, LongJobsCostRangesNotContributions) {
  constexpr int64_t kTotal = int64_t{1} << 40;
  const ContributionList list = Make({{10, kTotal - 10}}, kTotal);
  EXPECT_EQ(list.remaining_count(), 20);
  EXPECT_EQ(list.At(10), kTotal - 10);
  constexpr int64_t kMany = int64_t{1} << 38;
  EXPECT_EQ(Applied(Make(Ranges(), kTotal), {kMany, kMany + 1}),
            (AppliedWork{{{0, 2 * kMany}}, {{0, 1}}}));
}

TEST(ContributionListTest, FractionsOfAnEpochRoundUpToASample) {
  EXPECT_EQ(ContributionsOf(1.0, 10, 5), 2);
  EXPECT_EQ(ContributionsOf(1.5, 10, 5), 3);
  EXPECT_EQ(ContributionsOf(1.51, 10, 5), 4);  // 15.1 -> 16 samples
  EXPECT_EQ(ContributionsOf(0.1, 30, 1), 3);   // 0.1 * 30 > 3 in doubles
  EXPECT_EQ(ContributionsOf(1.1, 10, 1), 11);  // and so is this > 11
  EXPECT_EQ(ContributionsOf(1e-6, 10, 5), 1);
  EXPECT_EQ(ContributionsOf(3.0, 60000, 64), 2813);
}

}  // namespace
}  // namespace weir
