#include "tests/server/ps/optimizer/optimizer_suite.h"

namespace weir {
namespace {

INSTANTIATE_TEST_SUITE_P(
    MovingAverage, OptimizerSuite,
    testing::Values(GoldenCase{"rate_tenth", 0.0, "moving_average 0.1", -1},
                    GoldenCase{"rate_one", 0.0, "moving_average 1", -1}),
    CaseName);

TEST(MovingAverageTest, MovesTowardsTheSample) {
  const auto optimizer = MakeOptimizer("moving_average 0.25");
  OptimizerState state = MakeState(*optimizer, {1.0f, -2.0f});
  const float sample[] = {5.0f, -2.0f};
  Step(*optimizer, {7, 123.0, 0.5}, sample, &state);
  EXPECT_EQ(state.values, (std::vector<float>{2.0f, -2.0f}));
}

TEST(MovingAverageTest, TakesTheSampleItselfAtRateOne) {
  const auto optimizer = MakeOptimizer("moving_average 1");
  OptimizerState state = MakeState(*optimizer, {1e8f});
  const float sample = 0.1f;
  Step(*optimizer, {0, 1.0, {}}, &sample, &state);
  EXPECT_EQ(state.values[0], 0.1f);
}

TEST(MovingAverageTest, OnlyAssignsAtRateZero) {
  const auto optimizer = MakeOptimizer("moving_average 0");
  OptimizerState state = MakeState(*optimizer, {1.0f});
  const float sample = 5.0f;
  Step(*optimizer, {0, 1.0, {}}, &sample, &state);
  EXPECT_EQ(state.values[0], 1.0f);
}

}  // namespace
}  // namespace weir
