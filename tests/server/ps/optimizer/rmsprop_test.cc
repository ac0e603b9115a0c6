#include "tests/server/ps/optimizer/optimizer_suite.h"

namespace weir {
namespace {

INSTANTIATE_TEST_SUITE_P(RmsProp, OptimizerSuite, GoldenCases("rmsprop_"),
                         CaseName);

TEST(RmsPropTest, KeepsTheStateThatItsOptionsNeed) {
  const auto names = [](const std::string& spec) {
    std::string out;
    const auto optimizer = MakeOptimizer(spec);
    for (const StateSpec& state : optimizer->state()) {
      out += state.name + " ";
    }
    return out;
  };
  EXPECT_EQ(names("rmsprop {}"), "square_avg ");
  EXPECT_EQ(names("rmsprop { momentum: 0.1 }"), "square_avg momentum ");
  EXPECT_EQ(names("rmsprop { centered: true }"), "square_avg grad_avg ");
  EXPECT_EQ(names("rmsprop { centered: true momentum: 0.1 }"),
            "square_avg grad_avg momentum ");
}

TEST(RmsPropTest, NamesTheBadField) {
  EXPECT_EQ(OptimizerError("rmsprop { alpha: 1 }"),
            "optimizer.rmsprop.alpha: 1 is not in [0, 1)");
  EXPECT_EQ(OptimizerError("rmsprop { epsilon: -1 }"),
            "optimizer.rmsprop.epsilon: -1 is not >= 0");
  EXPECT_EQ(OptimizerError("rmsprop { weight_decay: -1 }"),
            "optimizer.rmsprop.weight_decay: -1 is not >= 0");
  EXPECT_EQ(OptimizerError("rmsprop { momentum: -1 }"),
            "optimizer.rmsprop.momentum: -1 is not >= 0");
}

}  // namespace
}  // namespace weir
