#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/compute/cpu/values.h"
#include "worker/compute/check/reference.h"
#include "worker/compute/cpu/operations.h"

namespace weir::cpu {
namespace {

using reference::Values;

TEST(SumRowsTest, CarriesLongSumsInDouble) {
  constexpr int64_t kRows = 200000;
  const std::vector<float> x(kRows * 3, 0.1f);
  std::vector<float> sums(3);
  Compute(op::SumRows{kRows, 3, x.data(), sums.data()});
  // Added one by one in float, this is off by more than 1e-3.
  ExpectNear(sums, Values(3, kRows * static_cast<double>(0.1f)), 2e-6);
}

// I1. The widths end within and behind a chunk of 64 columns.
TEST(SumRowsTest, HasTheSameBitsAtEveryAddress) {
  for (const int64_t width : {1, 5, 64, 67}) {
    const std::vector<float> x = Draw(1, 100 * width);
    std::vector<float> first(static_cast<size_t>(width));
    Compute(op::SumRows{100, width, x.data(), first.data()});
    for (size_t shift = 1; shift < 16; ++shift) {
      std::vector<float> moved(shift, 0.0f);
      moved.insert(moved.end(), x.begin(), x.end());
      std::vector<float> sums(static_cast<size_t>(width));
      Compute(op::SumRows{100, width, moved.data() + shift, sums.data()});
      EXPECT_EQ(sums, first) << width << " columns, moved by " << shift;
    }
  }
}

TEST(PoolTest, IsTheNaiveOneWithOverlapAndPadding) {
  for (const PoolShape& s :
       {PoolShape{2, 3, 5, 6, 2, 2, 0}, PoolShape{1, 70, 5, 5, 3, 2, 1},
        PoolShape{1, 1, 4, 4, 3, 1, 1}}) {
    const int64_t x_count = s.batch * s.height * s.width * s.channels;
    const int64_t y_count =
        s.batch * s.out_height() * s.out_width() * s.channels;
    const std::vector<float> x = Draw(1, x_count);
    const std::vector<float> dy = Draw(2, y_count);
    for (const PoolKind kind : {PoolKind::kMax, PoolKind::kAverage}) {
      std::vector<float> y(static_cast<size_t>(y_count), 1000.0f);
      Compute(op::PoolForward{kind, s, x.data(), y.data()});
      ExpectNear(y, reference::Pool(kind, s, Doubles(x)));
      std::vector<float> dx(static_cast<size_t>(x_count), 1000.0f);
      Compute(op::PoolBackward{kind, s, x.data(), dy.data(), dx.data()});
      ExpectNear(dx, reference::PoolBackward(kind, s, Doubles(x), Doubles(dy)));
    }
  }
}

TEST(ActivationTest, IsTheNaiveOneAndItsGradient) {
  const std::vector<float> x = Draw(1, 101, -4.0f, 4.0f);
  const std::vector<float> dy = Draw(2, 101);
  for (const ActivationKind kind :
       {ActivationKind::kRelu, ActivationKind::kSigmoid,
        ActivationKind::kTanh}) {
    std::vector<float> y(x.size());
    Compute(op::ActivationForward{kind, 101, x.data(), y.data()});
    ExpectNear(y, reference::Activation(kind, Doubles(x)));
    std::vector<float> dx(x.size());
    Compute(op::ActivationBackward{kind, 101, y.data(), dy.data(), dx.data()});
    ExpectNear(dx,
               reference::ActivationBackward(kind, Doubles(x), Doubles(dy)));
  }
}

TEST(ActivationTest, OverflowsNowhere) {
  const std::vector<float> x = {-1e4f, 1e4f, -100.0f, 100.0f};
  std::vector<float> y(4);
  Compute(
      op::ActivationForward{ActivationKind::kSigmoid, 4, x.data(), y.data()});
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 1.0f);
  EXPECT_TRUE(std::isfinite(y[2]));
  EXPECT_EQ(y[3], 1.0f);
}

TEST(DropoutTest, DecidesByThePositionAlone) {
  const std::vector<float> x = Draw(1, 1003, 1.0f, 2.0f);
  std::vector<float> all(x.size());
  Compute(op::Dropout{0, 0.25f, 1003, x.data(), all.data()}, 7);
  int64_t dropped = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == 0.0f) {
      ++dropped;
    } else {
      EXPECT_FLOAT_EQ(all[i], x[i] / 0.75f);
    }
  }
  EXPECT_NEAR(static_cast<double>(dropped) / 1003, 0.25, 0.06);
  std::vector<float> some(10);  // ends within four random words
  Compute(op::Dropout{0, 0.25f, 10, x.data(), some.data()}, 7);
  EXPECT_EQ(some, std::vector<float>(all.begin(), all.begin() + 10));
  std::vector<float> other(x.size());
  Compute(op::Dropout{0, 0.25f, 1003, x.data(), other.data()}, 8);
  EXPECT_NE(other, all);
}

TEST(PointwiseTest, AddsAndMultipliesInPlaceToo) {
  const std::vector<float> a = {1, 2, 3};
  const std::vector<float> b = {4, 5, 6};
  std::vector<float> y = {7, 8, 9};
  Compute(op::Add{3, a.data(), y.data(), y.data()});
  EXPECT_EQ(y, std::vector<float>({8, 10, 12}));
  Compute(op::MultiplyAdd{3, a.data(), b.data(), y.data(), y.data()});
  EXPECT_EQ(y, std::vector<float>({12, 20, 30}));
  Compute(op::MultiplyAdd{3, a.data(), b.data(), nullptr, y.data()});
  EXPECT_EQ(y, std::vector<float>({4, 10, 18}));
  ScaleAdd(3, 2.0f, a.data(), 0.5f, y.data());
  EXPECT_EQ(y, std::vector<float>({4, 9, 15}));
}

TEST(CopyColumnsTest, LeavesTheRestOfTheRows) {
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};  // rows of 3
  std::vector<float> y(8, 0.0f);                    // rows of 4
  Compute(op::CopyColumns{2, 2, x.data() + 1, 3, y.data() + 1, 4});
  EXPECT_EQ(y, std::vector<float>({0, 2, 3, 0, 0, 5, 6, 0}));
}

TEST(TransposeTest, SwapsRowsAndColumnsOfEveryMatrix) {
  constexpr int64_t kRows = 17;  // one more than a tile has
  constexpr int64_t kColumns = 33;
  const std::vector<float> x = Draw(1, 2 * kRows * kColumns);
  std::vector<float> y(x.size());
  Compute(op::Transpose{2, kRows, kColumns, x.data(), y.data()});
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < kColumns; ++c) {
        ASSERT_EQ(y[(b * kColumns + c) * kRows + r],
                  x[(b * kRows + r) * kColumns + c]);
      }
    }
  }
}

TEST(LossTest, IsTheNaiveOneAndItsGradient) {
  constexpr int64_t kRows = 9;
  constexpr int64_t kClasses = 5;
  const std::vector<float> x = Draw(1, kRows * kClasses, -3.0f, 3.0f);
  const std::vector<float> classes = {0, 1, 2, 3, 4, 0, 1, 2, 3};
  const std::vector<float> targets = Draw(2, kRows * kClasses);
  std::vector<float> loss(kRows);
  std::vector<float> correct(kRows);
  std::vector<float> dx(x.size());
  Compute(op::Loss{LossKind::kSoftmaxCrossEntropy, kRows, kClasses, x.data(),
                   classes.data(), loss.data(), correct.data(), dx.data()});
  constexpr LossKind kSoftmax = LossKind::kSoftmaxCrossEntropy;
  ExpectNear(loss, reference::LossRows(kSoftmax, kRows, kClasses, Doubles(x),
                                       Doubles(classes)));
  ExpectNear(dx, reference::LossBackward(kSoftmax, kRows, kClasses, Doubles(x),
                                         Doubles(classes)));
  constexpr LossKind kSquared = LossKind::kMeanSquaredError;
  Compute(op::Loss{LossKind::kMeanSquaredError, kRows, kClasses, x.data(),
                   targets.data(), loss.data(), correct.data(), dx.data()});
  ExpectNear(loss, reference::LossRows(kSquared, kRows, kClasses, Doubles(x),
                                       Doubles(targets)));
  ExpectNear(dx, reference::LossBackward(kSquared, kRows, kClasses, Doubles(x),
                                         Doubles(targets)));
  EXPECT_EQ(correct, std::vector<float>(kRows, 0.0f));
}

TEST(LossTest, SigmoidKeepsItsDigitsWhereItIsNearlySure) {
  const std::vector<float> x = {20.0f, -20.0f, 2.0f, 0.0f};
  const std::vector<float> labels = {1, 0, 0, 1};
  std::vector<float> loss(4);
  std::vector<float> correct(4);
  std::vector<float> dx(4);
  Compute(op::Loss{LossKind::kSigmoidCrossEntropy, 4, 1, x.data(),
                   labels.data(), loss.data(), correct.data(), dx.data()});
  EXPECT_EQ(correct, std::vector<float>({1, 1, 0, 0}));
  const double rest = std::exp(-20.0) / (1.0 + std::exp(-20.0));
  // s(20) - 1 would be 0 in float.
  EXPECT_NEAR(dx[0], -rest / 4, rest * 1e-6);
  EXPECT_NEAR(dx[1], rest / 4, rest * 1e-6);
  EXPECT_NEAR(loss[0], std::log1p(std::exp(-20.0)), 1e-14);
  EXPECT_NEAR(loss[3], std::log(2.0), 1e-6);
}

TEST(LossTest, SaysTheFirstOfEqualsAndNeedsNoGradient) {
  const std::vector<float> x = {2, 2, 1, 1, 2, 2};
  const std::vector<float> labels = {0, 2};
  std::vector<float> loss(2);
  std::vector<float> correct(2);
  Compute(op::Loss{LossKind::kSoftmaxCrossEntropy, 2, 3, x.data(),
                   labels.data(), loss.data(), correct.data(), nullptr});
  EXPECT_EQ(correct, std::vector<float>({1, 0}));
}

TEST(NanTest, WinsAMaximumAndPassesThroughRelu) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (size_t at = 0; at < 4; ++at) {
    std::vector<float> x = {1, 2, 3, 4};
    x[at] = nan;
    float y = 0.0f;
    Compute(
        op::PoolForward{PoolKind::kMax, {1, 1, 2, 2, 2, 2, 0}, x.data(), &y});
    EXPECT_TRUE(std::isnan(y)) << at;
  }
  float y = 0.0f;
  Compute(op::ActivationForward{ActivationKind::kRelu, 1, &nan, &y});
  EXPECT_TRUE(std::isnan(y));
}

}  // namespace
}  // namespace weir::cpu
