#include "tests/server/ps/optimizer/optimizer_suite.h"

namespace weir {
namespace {

INSTANTIATE_TEST_SUITE_P(Adagrad, OptimizerSuite, GoldenCases("adagrad_"),
                         CaseName);

TEST(AdagradTest, StartsFromTheInitialAccumulator) {
  EXPECT_EQ(MakeOptimizer("adagrad { initial_accumulator: 0.5 }")->state(),
            (std::vector<StateSpec>{{"sum", 0.5f}}));
}

TEST(AdagradTest, NamesTheBadField) {
  EXPECT_EQ(OptimizerError("adagrad { lr_decay: -1 }"),
            "optimizer.adagrad.lr_decay: -1 is not >= 0");
  EXPECT_EQ(OptimizerError("adagrad { weight_decay: -1 }"),
            "optimizer.adagrad.weight_decay: -1 is not >= 0");
  EXPECT_EQ(OptimizerError("adagrad { initial_accumulator: -1 }"),
            "optimizer.adagrad.initial_accumulator: -1 is not >= 0");
  EXPECT_EQ(OptimizerError("adagrad { epsilon: 1e39 }"),
            "optimizer.adagrad.epsilon: 1e+39 is not finite as a float32");
}

}  // namespace
}  // namespace weir
