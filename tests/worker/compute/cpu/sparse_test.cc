#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/compute/cpu/values.h"
#include "worker/compute/check/reference.h"
#include "worker/compute/cpu/operations.h"

namespace weir::cpu {
namespace {

using reference::Lists;
using reference::Values;

// Widths that have a loop of their own, and some that do not.
constexpr int64_t kWidths[] = {1, 3, 4, 8, 16, 32, 64, 65, 130};
constexpr int64_t kRows = 50;

// An empty list, short ones, and one that is longer than a block of sums.
Lists MakeLists(bool weighted) {
  Lists lists;
  RandomStream random(9);
  for (const int length : {0, 1, 5, 300, 0, 2}) {
    for (int i = 0; i < length; ++i) {
      lists.index.push_back(static_cast<int32_t>(random.NextBelow(kRows)));
      if (weighted) {
        lists.weights.push_back(random.NextFloat(0.5f, 1.0f));
      }
    }
    lists.offsets.push_back(static_cast<int32_t>(lists.index.size()));
  }
  return lists;
}

RowLists View(const Lists& lists, const std::vector<float>& weights) {
  RowLists view{.count = lists.count(),
                .offsets = lists.offsets.data(),
                .index = lists.index.data()};
  if (!weights.empty()) {
    view.weights = weights.data();
  }
  return view;
}

TEST(GatherSumTest, IsTheNaiveOne) {
  for (const bool weighted : {false, true}) {
    const Lists lists = MakeLists(weighted);
    const std::vector<float> weights(lists.weights.begin(),
                                     lists.weights.end());
    for (const int64_t width : kWidths) {
      SCOPED_TRACE(width);
      const std::vector<float> x = Draw(1, kRows * width, 0.1f, 1.0f);
      Values expected = reference::GatherSum(lists, width, Doubles(x));
      std::vector<float> y(expected.size(), 1000.0f);
      Compute(op::GatherSum{View(lists, weights), width, x.data(),
                            /*add=*/false, y.data()});
      ExpectNear(y, expected);
      y.assign(y.size(), 2.0f);
      Compute(op::GatherSum{View(lists, weights), width, x.data(), /*add=*/true,
                            y.data()});
      for (double& value : expected) {
        value += 2.0;
      }
      ExpectNear(y, expected);
    }
  }
}

TEST(GatherMaxTest, ChoosesTheFirstOfEqualsAndNothingInAnEmptyList) {
  // Rows of 2: {1, 5}, {3, 5}, {3, -7}.
  const std::vector<float> x = {1, 5, 3, 5, 3, -7};
  const Lists lists{.offsets = {0, 3, 3, 4}, .index = {0, 1, 2, 2}};
  std::vector<float> y(6, 1000.0f);
  std::vector<int32_t> chosen(6, 1000);
  Compute(op::GatherMax{View(lists, {}), 2, x.data(), y.data(), chosen.data()});
  EXPECT_EQ(y, std::vector<float>({3, 5, 0, 0, 3, -7}));
  EXPECT_EQ(chosen, std::vector<int32_t>({1, 0, -1, -1, 2, 2}));
}

TEST(GatherMaxTest, IsTheNaiveOneInEveryWidth) {
  const Lists lists = MakeLists(/*weighted=*/false);
  for (const int64_t width : kWidths) {
    const std::vector<float> x = Draw(1, kRows * width);
    const reference::MaxResult expected =
        reference::GatherMax(lists, width, Doubles(x));
    std::vector<float> y(expected.y.size());
    std::vector<int32_t> chosen(expected.y.size());
    Compute(op::GatherMax{View(lists, {}), width, x.data(), y.data(),
                          chosen.data()});
    EXPECT_EQ(Doubles(y), expected.y) << width;
    EXPECT_EQ(chosen, expected.chosen) << width;
  }
}

TEST(GatherMaxTest, LetsNanWin) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {1, nan, 3};
  const Lists lists{.offsets = {0, 3}, .index = {0, 1, 2}};
  float y = 0.0f;
  int32_t chosen = 0;
  Compute(op::GatherMax{View(lists, {}), 1, x.data(), &y, &chosen});
  EXPECT_TRUE(std::isnan(y));
  EXPECT_EQ(chosen, 1);
}

TEST(GatherChosenTest, SumsOnlyTheColumnsThatWereChosen) {
  // Two lists gave two rows of 2 each; list l here is the lists of row l.
  const std::vector<float> dy = {1, 2, 10, 20};
  const std::vector<int32_t> chosen = {0, 1, 0, 0};
  const Lists lists{.offsets = {0, 2, 4}, .index = {0, 1, 0, 1}};
  std::vector<float> dx(4, 1000.0f);
  Compute(op::GatherChosen{View(lists, {}), 2, dy.data(), chosen.data(),
                           /*add=*/false, dx.data()});
  EXPECT_EQ(dx, std::vector<float>({11, 20, 0, 2}));
  Compute(op::GatherChosen{View(lists, {}), 2, dy.data(), chosen.data(),
                           /*add=*/true, dx.data()});
  EXPECT_EQ(dx, std::vector<float>({22, 40, 0, 4}));
}

TEST(PairsTest, AreTheNaiveOnesAndTheirGradients) {
  for (const VectorsShape& s : {VectorsShape{3, 2, 1}, VectorsShape{2, 7, 65},
                                VectorsShape{1, 70, 4}}) {
    const std::vector<float> x =
        Draw(1, s.batch * s.vectors * s.dim, 0.1f, 1.0f);
    const Values dots = reference::PairDots(s, Doubles(x));
    std::vector<float> y(dots.size());
    Compute(op::PairForward{PairKind::kDots, s, x.data(), y.data()});
    ExpectNear(y, dots);
    const std::vector<float> dy = Draw(2, s.batch * s.pairs());
    std::vector<float> dx(x.size());
    Compute(
        op::PairBackward{PairKind::kDots, s, x.data(), dy.data(), dx.data()});
    ExpectNear(dx, reference::PairDotsBackward(s, Doubles(x), Doubles(dy)));

    Values sums(static_cast<size_t>(s.batch));
    const std::vector<float> dy_sum = Draw(3, s.batch);
    Values dy_by_pair(dots.size());
    for (size_t p = 0; p < dots.size(); ++p) {
      const size_t sample = p / static_cast<size_t>(s.pairs());
      sums[sample] += dots[p];
      dy_by_pair[p] = dy_sum[sample];
    }
    std::vector<float> y_sum(sums.size());
    Compute(op::PairForward{PairKind::kSum, s, x.data(), y_sum.data()});
    ExpectNear(y_sum, sums);
    Compute(op::PairBackward{PairKind::kSum, s, x.data(), dy_sum.data(),
                             dx.data()});
    ExpectNear(dx, reference::PairDotsBackward(s, Doubles(x), dy_by_pair));
  }
}

// The square of the sum less the sum of squares would leave nothing of 1.
TEST(PairsTest, SumOfPairsDoesNotCancel) {
  const std::vector<float> x = {1e5f, 1e-5f};
  float y = 0.0f;
  Compute(op::PairForward{PairKind::kSum, {1, 2, 1}, x.data(), &y});
  EXPECT_FLOAT_EQ(y, 1.0f);
}

}  // namespace
}  // namespace weir::cpu
