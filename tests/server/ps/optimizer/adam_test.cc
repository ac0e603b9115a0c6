#include <cmath>

#include "tests/server/ps/optimizer/optimizer_suite.h"

namespace weir {
namespace {

INSTANTIATE_TEST_SUITE_P(Adam, OptimizerSuite, GoldenCases("adam_"), CaseName);
INSTANTIATE_TEST_SUITE_P(AdamW, OptimizerSuite, GoldenCases("adamw_"),
                         CaseName);

TEST(AdamTest, KeepsAMaximumOnlyForAmsGrad) {
  const std::vector<StateSpec> two = {{"m", 0.0f}, {"v", 0.0f}};
  const std::vector<StateSpec> three = {
      {"m", 0.0f}, {"v", 0.0f}, {"v_max", 0.0f}};
  EXPECT_EQ(MakeOptimizer("adam {}")->state(), two);
  EXPECT_EQ(MakeOptimizer("adamw {}")->state(), two);
  EXPECT_EQ(MakeOptimizer("adam { amsgrad: true }")->state(), three);
}

TEST(AdamTest, CorrectsTheBiasByTheSegmentsOwnStep) {
  // With one gradient at step t and m = v = 0 before it, the step is
  // lr (1 - b1)/(1 - b1^(t+1)) / sqrt((1 - b2)/(1 - b2^(t+1))) for any g.
  const auto optimizer = MakeOptimizer("adam {}");
  for (const int t : {0, 1, 9, 999, 100000}) {
    OptimizerState state = MakeState(*optimizer, {0.0f});
    const float gradient = 3.0f;
    Step(*optimizer, {static_cast<uint64_t>(t), 0.1, {}}, &gradient, &state);
    const double expected = -0.1 * (0.1 / (1 - std::pow(0.9, t + 1))) /
                            std::sqrt(0.001 / (1 - std::pow(0.999, t + 1)));
    EXPECT_NEAR(state.values[0], expected, 1e-6 * std::fabs(expected)) << t;
  }
}

TEST(AdamTest, NamesTheBadField) {
  EXPECT_EQ(OptimizerError("adam { beta1: 1.5 }"),
            "optimizer.adam.beta1: 1.5 is not in [0, 1)");
  EXPECT_EQ(OptimizerError("adam { beta2: 1 }"),
            "optimizer.adam.beta2: 1 is not in [0, 1)");
  EXPECT_EQ(OptimizerError("adamw { epsilon: -1 }"),
            "optimizer.adamw.epsilon: -1 is not >= 0");
  EXPECT_EQ(OptimizerError("adamw { weight_decay: inf }"),
            "optimizer.adamw.weight_decay: inf is not finite");
}

}  // namespace
}  // namespace weir
