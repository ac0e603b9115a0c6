// Proves the naive backward passes by central differences of the forward ones.
#include "worker/compute/check/reference.h"

#include <functional>

#include "common/math/random.h"
#include "gtest/gtest.h"

namespace weir::reference {
namespace {

Values Random(uint64_t seed, int64_t count, float low = -2.0f,
              float high = 2.0f) {
  RandomStream random(seed);
  Values values(count);
  for (double& value : values) {
    value = random.NextFloat(low, high);
  }
  return values;
}

double Dot(const Values& a, const Values& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

void ExpectGradient(const std::function<double(const Values&)>& f, Values x,
                    const Values& gradient) {
  ASSERT_EQ(x.size(), gradient.size());
  constexpr double kStep = 1e-5;  // in double: errors of 1e-10
  for (size_t i = 0; i < x.size(); ++i) {
    const double old = x[i];
    x[i] = old + kStep;
    const double up = f(x);
    x[i] = old - kStep;
    const double down = f(x);
    x[i] = old;
    EXPECT_NEAR(gradient[i], (up - down) / (2 * kStep), 1e-7) << i;
  }
}

TEST(ReferenceTest, MatMulIsWhatItsDefinitionSays) {
  // [1 2; 3 4] [5 6; 7 8] = [19 22; 43 50], in every storage order.
  const Values c = {19 + 1, 22 + 2, 43 + 1, 50 + 2};
  const Values a = {1, 2, 3, 4}, at = {1, 3, 2, 4};
  const Values b = {5, 6, 7, 8}, bt = {5, 7, 6, 8};
  EXPECT_EQ(MatMul({.m = 2, .n = 2, .k = 2}, a, b, {1, 2}), c);
  EXPECT_EQ(
      MatMul({.m = 2, .n = 2, .k = 2, .transpose_a = true}, at, b, {1, 2}), c);
  EXPECT_EQ(
      MatMul({.m = 2, .n = 2, .k = 2, .transpose_b = true}, a, bt, {1, 2}), c);
}

TEST(ReferenceTest, Conv2dBackwardIsTheGradient) {
  for (const Conv2dShape& s : {Conv2dShape{2, 2, 4, 5, 3, 3, 1, 1},
                               Conv2dShape{1, 1, 5, 5, 2, 2, 2, 0},
                               Conv2dShape{1, 2, 4, 4, 1, 3, 2, 2}}) {
    const Values x = Random(1, s.batch * s.height * s.width * s.channels);
    const Values k = Random(2, s.filters * s.channels * s.kernel * s.kernel);
    const Values bias = Random(3, s.filters);
    const Values dy =
        Random(4, s.batch * s.out_height() * s.out_width() * s.filters);
    const Conv2dGradients d = Conv2dBackward(s, x, k, dy);
    ExpectGradient(
        [&](const Values& v) { return Dot(Conv2d(s, v, k, bias), dy); }, x,
        d.x);
    ExpectGradient(
        [&](const Values& v) { return Dot(Conv2d(s, x, v, bias), dy); }, k,
        d.kernel);
    ExpectGradient([&](const Values& v) { return Dot(Conv2d(s, x, k, v), dy); },
                   bias, d.bias);
  }
}

TEST(ReferenceTest, PoolBackwardIsTheGradient) {
  for (const PoolKind kind : {PoolKind::kMax, PoolKind::kAverage}) {
    for (const PoolShape& s :
         {PoolShape{2, 2, 4, 5, 2, 2, 0}, PoolShape{1, 3, 5, 5, 3, 2, 1},
          PoolShape{1, 1, 4, 4, 2, 1, 1}}) {
      const Values x = Random(1, s.batch * s.height * s.width * s.channels);
      const Values dy =
          Random(2, s.batch * s.out_height() * s.out_width() * s.channels);
      ExpectGradient([&](const Values& v) { return Dot(Pool(kind, s, v), dy); },
                     x, PoolBackward(kind, s, x, dy));
    }
  }
}

TEST(ReferenceTest, ActivationBackwardIsTheGradient) {
  const Values x = Random(1, 20);
  const Values dy = Random(2, 20);
  for (const ActivationKind kind :
       {ActivationKind::kRelu, ActivationKind::kSigmoid,
        ActivationKind::kTanh}) {
    ExpectGradient(
        [&](const Values& v) { return Dot(Activation(kind, v), dy); }, x,
        ActivationBackward(kind, x, dy));
  }
}

TEST(ReferenceTest, NormBackwardIsTheGradient) {
  constexpr double kEpsilon = 1e-2;
  for (const NormOver over : {NormOver::kRow, NormOver::kColumn}) {
    const Values x = Random(1, 15);
    const Values scale = Random(2, 3);
    const Values offset = Random(3, 3);
    const Values dy = Random(4, 15);
    const auto norm = [&](const Values& x, const Values& s, const Values& o) {
      return Dot(Norm(over, 5, 3, kEpsilon, x, s, o).y, dy);
    };
    const NormGradients d = NormBackward(over, 5, 3, kEpsilon, x, scale, dy);
    ExpectGradient([&](const Values& v) { return norm(v, scale, offset); }, x,
                   d.x);
    ExpectGradient([&](const Values& v) { return norm(x, v, offset); }, scale,
                   d.scale);
    ExpectGradient([&](const Values& v) { return norm(x, scale, v); }, offset,
                   d.offset);
  }
}

TEST(ReferenceTest, LossBackwardIsTheGradient) {
  const auto check = [](LossKind kind, int64_t width, const Values& labels) {
    const Values x = Random(1, 4 * width);
    const Values mean(4, 0.25);
    ExpectGradient(
        [&](const Values& v) {
          return Dot(LossRows(kind, 4, width, v, labels), mean);
        },
        x, LossBackward(kind, 4, width, x, labels));
  };
  check(LossKind::kSoftmaxCrossEntropy, 3, {0, 2, 1, 1});
  check(LossKind::kSigmoidCrossEntropy, 1, {0, 1, 1, 0});
  check(LossKind::kMeanSquaredError, 3, Random(9, 12));
}

TEST(ReferenceTest, GathersBackwardAreTheGradients) {
  const Lists lists = {.offsets = {0, 3, 3, 4, 6},
                       .index = {2, 0, 2, 3, 1, 0},
                       .weights = Random(1, 6)};
  const Values x = Random(2, 15);
  const Values dy = Random(3, 12);
  ExpectGradient(
      [&](const Values& v) { return Dot(GatherSum(lists, 3, v), dy); }, x,
      GatherSumBackward(lists, 5, 3, dy));
  const MaxResult max = GatherMax(lists, 3, x);
  ExpectGradient(
      [&](const Values& v) { return Dot(GatherMax(lists, 3, v).y, dy); }, x,
      GatherMaxBackward(max.chosen, 5, 3, dy));
  // Rows 2, 0, 2: of equals the first.
  EXPECT_EQ(GatherMax(lists, 3, Values(15, 1.0)).chosen,
            std::vector<int32_t>({2, 2, 2, -1, -1, -1, 3, 3, 3, 1, 1, 1}));
}

TEST(ReferenceTest, PairDotsBackwardIsTheGradient) {
  const VectorsShape shape{2, 4, 3};
  EXPECT_EQ(PairDots({1, 3, 2}, {1, 2, 3, 4, 5, 6}),
            Values({11, 17, 39}));  // (1,0), (2,0), (2,1)
  const Values x = Random(1, 24);
  const Values dy = Random(2, 12);
  ExpectGradient([&](const Values& v) { return Dot(PairDots(shape, v), dy); },
                 x, PairDotsBackward(shape, x, dy));
}

}  // namespace
}  // namespace weir::reference
