#include "tests/server/ps/optimizer/optimizer_suite.h"

namespace weir {
namespace {

INSTANTIATE_TEST_SUITE_P(Sgd, OptimizerSuite, GoldenCases("sgd_"), CaseName);

TEST(SgdTest, KeepsABufferOnlyWithMomentum) {
  EXPECT_TRUE(MakeOptimizer("sgd {}")->state().empty());
  EXPECT_EQ(MakeOptimizer("sgd { momentum: 0.5 }")->state(),
            (std::vector<StateSpec>{{"momentum", 0.0f}}));
}

TEST(SgdTest, IgnoresTheBufferAndDampeningAtStepZero) {
  const auto optimizer = MakeOptimizer("sgd { momentum: 0.5 dampening: 0.25 }");
  OptimizerState state = {{1.0f}, {{99.0f}}};
  const float gradient = 2.0f;
  Step(*optimizer, {0, 0.5, {}}, &gradient, &state);
  EXPECT_EQ(state, (OptimizerState{{0.0f}, {{2.0f}}}));
  Step(*optimizer, {1, 0.5, {}}, &gradient, &state);
  // b = 0.5 * 2 + 0.75 * 2
  EXPECT_EQ(state, (OptimizerState{{-1.25f}, {{2.5f}}}));
}

TEST(SgdTest, NamesTheBadField) {
  EXPECT_EQ(OptimizerError("sgd { momentum: -1 }"),
            "optimizer.sgd.momentum: -1 is not >= 0");
  EXPECT_EQ(OptimizerError("sgd { dampening: 2 }"),
            "optimizer.sgd.dampening: 2 is not in [0, 1]");
  EXPECT_EQ(OptimizerError("sgd { weight_decay: nan }"),
            "optimizer.sgd.weight_decay: nan is not finite");
  EXPECT_EQ(OptimizerError("sgd { nesterov: true }"),
            "optimizer.sgd.nesterov: true needs momentum > 0 and dampening 0, "
            "but they are 0 and 0");
}

}  // namespace
}  // namespace weir
