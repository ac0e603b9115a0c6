#include "server/ps/optimizer/moving_average.h"

#include "tests/server/ps/optimizer/rule_suite.h"

namespace weir {
namespace {

INSTANTIATE_TEST_SUITE_P(
    MovingAverage, RuleSuite,
    testing::Values(GoldenCase{"rate_tenth", 0.0, "moving_average 0.1", -1},
                    GoldenCase{"rate_one", 0.0, "moving_average 1", -1}),
    CaseName);

TEST(MovingAverageTest, MovesTowardsTheSample) {
  const auto rule = MakeRule("moving_average 0.25");
  RuleState state = MakeState(*rule, {1.0f, -2.0f});
  const float sample[] = {5.0f, -2.0f};
  Step(*rule, {7, 123.0, 0.5}, sample, &state);
  EXPECT_EQ(state.values, (std::vector<float>{2.0f, -2.0f}));
}

TEST(MovingAverageTest, TakesTheSampleItselfAtRateOne) {
  const auto rule = MakeRule("moving_average 1");
  RuleState state = MakeState(*rule, {1e8f});
  const float sample = 0.1f;
  Step(*rule, {0, 1.0, {}}, &sample, &state);
  EXPECT_EQ(state.values[0], 0.1f);
}

TEST(MovingAverageTest, OnlyAssignsAtRateZero) {
  const auto rule = MakeRule("moving_average 0");
  RuleState state = MakeState(*rule, {1.0f});
  const float sample = 5.0f;
  Step(*rule, {0, 1.0, {}}, &sample, &state);
  EXPECT_EQ(state.values[0], 1.0f);
}

TEST(MovingAverageTest, NamesTheBadField) {
  EXPECT_EQ(RuleError("moving_average 1.5"),
            "variable \"mean\".buffer_rate: 1.5 is not in [0, 1]");
}

}  // namespace
}  // namespace weir
