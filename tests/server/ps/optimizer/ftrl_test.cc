#include <cmath>

#include "tests/server/ps/optimizer/optimizer_suite.h"

namespace weir {
namespace {

INSTANTIATE_TEST_SUITE_P(Ftrl, OptimizerSuite, GoldenCases("ftrl_"), CaseName);

struct FtrlOptions {
  double power = 0.5, n0 = 0.1, l1 = 0, l2 = 0, shrinkage = 0, beta = 0;
};

// One element trained in double: after each step the value is the minimiser
// of z w + l1 |w| + (n^p / lr + 2 l2 + beta / lr) w^2 / 2 (McMahan et al.
// 2013, section 3), found here by its subgradient condition.
double Reference(const FtrlOptions& o, double lr, int element, double w) {
  double n = o.n0;
  double z = 0;
  for (int t = 0; t < kGoldenSteps; ++t) {
    const double g = GoldenGradient(t)[element];
    const double sigma =
        (std::pow(n + g * g, o.power) - std::pow(n, o.power)) / lr;
    n += g * g;
    z += g + 2 * o.shrinkage * w - sigma * w;
    const double curvature = std::pow(n, o.power) / lr + 2 * o.l2 + o.beta / lr;
    w = 0.0;
    if (z > o.l1) {
      w = (o.l1 - z) / curvature;
    } else if (z < -o.l1) {
      w = (-o.l1 - z) / curvature;
    }
  }
  return w;
}

void ExpectFollows(const std::string& spec, const FtrlOptions& options) {
  const double lr = 0.05;
  const auto optimizer = MakeOptimizer(spec);
  OptimizerState state = MakeState(*optimizer, GoldenStart());
  for (int t = 0; t < kGoldenSteps; ++t) {
    Step(*optimizer, {static_cast<uint64_t>(t), lr, {}}, GoldenGradient(t),
         &state);
  }
  double error = 0;
  double path = 0;
  for (int i = 0; i < kGoldenElements; ++i) {
    const double start = GoldenStart()[static_cast<size_t>(i)];
    const double expected = Reference(options, lr, i, start);
    error += std::pow(state.values[static_cast<size_t>(i)] - expected, 2);
    path += std::pow(expected - start, 2);
  }
  EXPECT_LE(std::sqrt(error), 1e-6 * std::sqrt(path)) << spec;
}

TEST(FtrlTest, FollowsTheClosedFormInDouble) {
  ExpectFollows("ftrl {}", {});
  ExpectFollows("ftrl { l1: 0.05 }", {.l1 = 0.05});
  ExpectFollows("ftrl { l2: 0.5 }", {.l2 = 0.5});
  ExpectFollows("ftrl { l2_shrinkage: 0.5 }", {.shrinkage = 0.5});
  ExpectFollows("ftrl { beta: 1 }", {.beta = 1});
  ExpectFollows("ftrl { learning_rate_power: -0.6 initial_accumulator: 1 }",
                {.power = 0.6, .n0 = 1});
}

TEST(FtrlTest, ShrinksBothSignsToZeroBelowL1) {
  const auto optimizer =
      MakeOptimizer("ftrl { l1: 10 initial_accumulator: 1 }");
  OptimizerState state = MakeState(*optimizer, {0.0f, 0.0f, 0.0f, 0.0f});
  const float gradient[] = {9.0f, -9.0f, 12.0f, -12.0f};
  Step(*optimizer, {0, 1.0, {}}, gradient, &state);
  EXPECT_EQ(state.values[0], 0.0f);
  EXPECT_EQ(state.values[1], 0.0f);
  EXPECT_FLOAT_EQ(state.values[2], -2.0f / std::sqrt(145.0f));
  EXPECT_FLOAT_EQ(state.values[3], 2.0f / std::sqrt(145.0f));
}

TEST(FtrlTest, ChangesNothingAtLearningRateZero) {
  const auto optimizer = MakeOptimizer("ftrl {}");
  OptimizerState state = MakeState(*optimizer, {1.0f});
  const OptimizerState before = state;
  const float gradient = 2.0f;
  Step(*optimizer, {5, 0.0, {}}, &gradient, &state);
  EXPECT_EQ(state, before);
}

TEST(FtrlTest, NamesTheBadField) {
  EXPECT_EQ(OptimizerError("ftrl { learning_rate_power: 0.5 }"),
            "optimizer.ftrl.learning_rate_power: 0.5 is not in [-10, 0]");
  EXPECT_EQ(OptimizerError("ftrl { initial_accumulator: -1 }"),
            "optimizer.ftrl.initial_accumulator: -1 is not >= 0");
  EXPECT_EQ(OptimizerError("ftrl { l1: -1 }"),
            "optimizer.ftrl.l1: -1 is not >= 0");
  EXPECT_EQ(OptimizerError("ftrl { l2: -1 }"),
            "optimizer.ftrl.l2: -1 is not >= 0");
  EXPECT_EQ(OptimizerError("ftrl { l2_shrinkage: -1 }"),
            "optimizer.ftrl.l2_shrinkage: -1 is not >= 0");
  EXPECT_EQ(OptimizerError("ftrl { beta: -1 }"),
            "optimizer.ftrl.beta: -1 is not >= 0");
}

}  // namespace
}  // namespace weir
