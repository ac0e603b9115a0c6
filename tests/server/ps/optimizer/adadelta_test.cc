#include "tests/server/ps/optimizer/optimizer_suite.h"

namespace weir {
namespace {

INSTANTIATE_TEST_SUITE_P(Adadelta, OptimizerSuite, GoldenCases("adadelta_"),
                         CaseName);

TEST(AdadeltaTest, NamesTheBadField) {
  EXPECT_EQ(OptimizerError("adadelta { rho: 1 }"),
            "optimizer.adadelta.rho: 1 is not in [0, 1)");
  EXPECT_EQ(OptimizerError("adadelta { epsilon: -1 }"),
            "optimizer.adadelta.epsilon: -1 is not >= 0");
  EXPECT_EQ(OptimizerError("adadelta { weight_decay: -1 }"),
            "optimizer.adadelta.weight_decay: -1 is not >= 0");
}

}  // namespace
}  // namespace weir
