#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/compute/cpu/values.h"
#include "worker/compute/check/reference.h"
#include "worker/compute/cpu/operations.h"

namespace weir::cpu {
namespace {

using reference::Values;

constexpr float kEpsilon = 1e-3f;

struct Shape {
  int64_t rows, width;
};

// One norm over rows or columns, forward and backward.
struct Norm {
  Norm(NormOver over, const Shape& s, const std::vector<float>& x)
      : scale(Draw(2, s.width, 0.5f, 1.5f)),
        offset(Draw(3, s.width)),
        dy(Draw(4, s.rows * s.width)),
        y(x.size()),
        mean(static_cast<size_t>(over == NormOver::kRow ? s.rows : s.width)),
        rstd(mean.size()),
        variance(static_cast<size_t>(s.width)),
        dx(x.size()),
        dscale(scale.size()),
        doffset(scale.size()) {
    Compute(op::NormForward{.over = over,
                            .rows = s.rows,
                            .width = s.width,
                            .epsilon = kEpsilon,
                            .x = x.data(),
                            .scale = scale.data(),
                            .offset = offset.data(),
                            .y = y.data(),
                            .mean = mean.data(),
                            .rstd = rstd.data(),
                            .variance = variance.data()});
    Compute(op::NormBackward{over, s.rows, s.width, x.data(), scale.data(),
                             mean.data(), rstd.data(), dy.data(), dx.data(),
                             dscale.data(), doffset.data()});
  }

  const std::vector<float> scale, offset, dy;
  std::vector<float> y, mean, rstd, variance, dx, dscale, doffset;
};

// The widths and heights end within lanes of 16 and chunks of 64.
constexpr Shape kShapes[] = {{5, 3}, {33, 130}, {70, 64}, {200, 17}};

TEST(NormTest, IsTheNaiveOneAndItsGradient) {
  for (const NormOver over : {NormOver::kRow, NormOver::kColumn}) {
    for (const Shape& s : kShapes) {
      SCOPED_TRACE(testing::Message() << s.rows << "x" << s.width);
      const std::vector<float> x = Draw(1, s.rows * s.width);
      const Norm norm(over, s, x);
      const reference::NormResult expected =
          reference::Norm(over, s.rows, s.width, kEpsilon, Doubles(x),
                          Doubles(norm.scale), Doubles(norm.offset));
      ExpectNear(norm.y, expected.y);
      ExpectNear(norm.mean, expected.mean);
      Values rstd;
      for (const double v : expected.variance) {
        rstd.push_back(1.0 / std::sqrt(v + kEpsilon));
      }
      ExpectNear(norm.rstd, rstd);
      const reference::NormGradients d =
          reference::NormBackward(over, s.rows, s.width, kEpsilon, Doubles(x),
                                  Doubles(norm.scale), Doubles(norm.dy));
      ExpectNear(norm.dx, d.x);
      ExpectNear(norm.dscale, d.scale);
      ExpectNear(norm.doffset, d.offset);
    }
  }
}

// The variance is 1/3, and squares of 1e3 have steps of 1/16 in float: the mean
// of squares less the square of the mean would be off by tens of percent.
TEST(NormTest, KeepsTheVarianceFarFromZero) {
  for (const NormOver over : {NormOver::kRow, NormOver::kColumn}) {
    const Shape s{40, 40};
    const std::vector<float> x = Draw(1, 1600, 1e3f, 1e3f + 2.0f);
    const Norm norm(over, s, x);
    const reference::NormResult expected =
        reference::Norm(over, s.rows, s.width, kEpsilon, Doubles(x),
                        Doubles(norm.scale), Doubles(norm.offset));
    // The terms of the mean are added in float, in steps of up to 1/256.
    ExpectNear(norm.y, expected.y, 1e-2);
  }
}

// I1 of operations.h.
TEST(NormTest, HasTheSameBitsAtEveryAddress) {
  for (const NormOver over : {NormOver::kRow, NormOver::kColumn}) {
    const Shape s{37, 53};
    const std::vector<float> x = Draw(1, s.rows * s.width);
    const Norm first(over, s, x);
    for (size_t shift = 1; shift < 16; ++shift) {
      std::vector<float> moved(shift, 0.0f);
      moved.insert(moved.end(), x.begin(), x.end());
      std::vector<float> y(x.size()), mean(53), rstd(53), variance(53);
      Compute(op::NormForward{over, s.rows, s.width, kEpsilon,
                              moved.data() + shift, first.scale.data(),
                              first.offset.data(), y.data(), mean.data(),
                              rstd.data(), variance.data()});
      EXPECT_EQ(y, first.y) << "moved by " << shift;
    }
  }
}

TEST(NormTest, LeavesOutDxWhereNobodyWantsIt) {
  const Shape s{33, 20};
  const std::vector<float> x = Draw(1, s.rows * s.width);
  for (const NormOver over : {NormOver::kRow, NormOver::kColumn}) {
    const Norm norm(over, s, x);
    std::vector<float> dscale(20), doffset(20);
    Compute(op::NormBackward{over, s.rows, s.width, x.data(), norm.scale.data(),
                             norm.mean.data(), norm.rstd.data(), norm.dy.data(),
                             nullptr, dscale.data(), doffset.data()});
    EXPECT_EQ(dscale, norm.dscale);
    EXPECT_EQ(doffset, norm.doffset);
  }
}

TEST(BatchNormTest, GivesTheUnbiasedVarianceAndZeroForOneRow) {
  const std::vector<float> x = {1, 10, 3, 10, 8, 10};  // 3 rows of 2
  const Norm norm(NormOver::kColumn, {3, 2}, x);
  EXPECT_FLOAT_EQ(norm.variance[0], 13.0f);  // (9 + 1 + 16) / 2
  EXPECT_EQ(norm.variance[1], 0.0f);
  const Norm one(NormOver::kColumn, {1, 2}, {5, 6});
  EXPECT_EQ(one.variance, std::vector<float>({0, 0}));
  EXPECT_EQ(one.y, one.offset);
}

TEST(BatchNormTest, InfersFromGivenStatistics) {
  const std::vector<float> x = Draw(1, 7 * 70);
  const std::vector<float> scale = Draw(2, 70);
  const std::vector<float> offset = Draw(3, 70);
  const std::vector<float> mean = Draw(4, 70);
  const std::vector<float> variance = Draw(5, 70, 0.0f, 2.0f);
  std::vector<float> y(x.size());
  Compute(op::NormInference{7, 70, kEpsilon, x.data(), scale.data(),
                            offset.data(), mean.data(), variance.data(),
                            y.data()});
  Values expected;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i % 70;
    expected.push_back((static_cast<double>(x[i]) - mean[c]) /
                           std::sqrt(static_cast<double>(variance[c]) +
                                     static_cast<double>(kEpsilon)) *
                           scale[c] +
                       offset[c]);
  }
  ExpectNear(y, expected);
}

}  // namespace
}  // namespace weir::cpu
