// Compares the AUC with a count over all pairs.
#include "worker/evaluate/auc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "common/math/random.h"

namespace weir {
namespace {

// The definition, in O(n^2) steps; -1 without a pair.
double AllPairs(const std::vector<Score>& scores) {
  double ordered = 0, pairs = 0;
  for (const Score& a : scores) {
    for (const Score& b : scores) {
      if (a.second && !b.second) {
        pairs += 1;
        if (a.first > b.first) {
          ordered += 1;
        } else if (a.first == b.first) {
          ordered += 0.5;
        }
      }
    }
  }
  return pairs == 0 ? -1 : ordered / pairs;
}

// Half the share of the pairs that fall into one bin. Such a pair is worth
// between 0 and 1, and BinnedAuc takes the middle.
double BinnedErrorMax(const std::vector<Score>& scores) {
  const auto bin = [](float score) {
    return std::min(static_cast<int>(score * BinnedAuc::kBins),
                    BinnedAuc::kBins - 1);
  };
  double tied = 0, pairs = 0;
  for (const Score& a : scores) {
    for (const Score& b : scores) {
      if (a.second && !b.second) {
        pairs += 1;
        tied += bin(a.first) == bin(b.first) ? 1 : 0;
      }
    }
  }
  return tied / pairs / 2;
}

// Few `distinct` values give many ties; with 0 there are hardly any.
std::vector<Score> RandomScores(int count, uint32_t distinct,
                                RandomStream* random) {
  std::vector<Score> scores;
  for (int i = 0; i < count; ++i) {
    const bool positive = random->NextFloat() < 0.3f;
    const float score = distinct == 0
                            ? random->NextFloat()
                            : static_cast<float>(random->NextBelow(distinct)) /
                                  static_cast<float>(distinct);
    scores.emplace_back(0.8f * score + (positive ? 0.2f : 0.0f), positive);
  }
  return scores;
}

TEST(AucTest, IsTheShareOfOrderedPairsWithTiesAsHalf) {
  RandomStream random(7);
  for (const uint32_t distinct : {0u, 1u, 2u, 5u, 50u}) {
    for (const int count : {2, 3, 10, 300}) {
      const std::vector<Score> scores = RandomScores(count, distinct, &random);
      const double expected = AllPairs(scores);
      EXPECT_NEAR(Auc(scores), expected < 0 ? 0.5 : expected, 1e-12)
          << distinct << " " << count;
    }
  }
}

TEST(AucTest, WithoutAPairItIsAHalf) {
  EXPECT_EQ(Auc({}), 0.5);
  EXPECT_EQ(Auc({{1.0f, true}, {2.0f, true}}), 0.5);
  EXPECT_EQ(Auc({{1.0f, false}}), 0.5);
  EXPECT_EQ(BinnedAuc().Value(), 0.5);
}

TEST(AucTest, InfinitiesAreOrderedAndTied) {
  const float inf = INFINITY;
  const std::vector<Score> scores = {
      {-inf, false}, {-inf, true}, {inf, true}, {inf, false}, {0.0f, true}};
  EXPECT_NEAR(Auc(scores), AllPairs(scores), 1e-12);
}

TEST(BinnedAucTest, StaysWithinItsBound) {
  RandomStream random(8);
  for (const uint32_t distinct : {0u, 3u, 1000u}) {
    const std::vector<Score> scores = RandomScores(3000, distinct, &random);
    BinnedAuc binned;
    for (const auto& [score, positive] : scores) {
      binned.Add(static_cast<double>(score), positive);
    }
    const double exact = AllPairs(scores);
    const double error_max = BinnedErrorMax(scores);
    EXPECT_LE(std::abs(binned.Value() - exact), error_max + 1e-12);
    if (distinct == 0) {
      EXPECT_LT(error_max, 2.0 / BinnedAuc::kBins);
      EXPECT_NE(binned.Value(), exact);
    } else if (distinct == 3) {  // every tie is a true one
      EXPECT_NEAR(binned.Value(), exact, 1e-12);
    }
  }
}

TEST(BinnedAucTest, TakesTheEndsOfTheRange) {
  BinnedAuc binned;
  binned.Add(0.0, false);
  binned.Add(1.0, true);
  EXPECT_EQ(binned.Value(), 1.0);
}

TEST(GroupAucTest, IsTheMeanOverGroupsWeightedBySamples) {
  RandomStream random(9);
  std::vector<GroupedScore> scores;
  std::map<uint64_t, std::vector<Score>> groups;
  for (const auto& [score, positive] : RandomScores(400, 9, &random)) {
    const uint64_t group = random.NextBelow(60) * 0x123456789abcdefu;
    scores.push_back({group, score, positive});
    groups[group].emplace_back(score, positive);
  }
  double weighted = 0, weights = 0;
  int without_pair = 0;
  for (const auto& [group, members] : groups) {
    const double auc = AllPairs(members);
    if (auc < 0) {
      ++without_pair;
      continue;
    }
    weighted += auc * static_cast<double>(members.size());
    weights += static_cast<double>(members.size());
  }
  ASSERT_GT(without_pair, 0);
  const auto result = GroupAuc(scores);
  ASSERT_TRUE(result.has_value());
  EXPECT_NEAR(*result, weighted / weights, 1e-12);
}

TEST(GroupAucTest, GroupsWithoutAPairGiveNone) {
  EXPECT_FALSE(GroupAuc({}).has_value());
  EXPECT_FALSE(GroupAuc({{1, 0.5f, true}, {2, 0.5f, false}}).has_value());
}

}  // namespace
}  // namespace weir
