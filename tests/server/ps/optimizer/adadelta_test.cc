#include "server/ps/optimizer/adadelta.h"

#include "tests/server/ps/optimizer/rule_suite.h"

namespace weir {
namespace {

INSTANTIATE_TEST_SUITE_P(Adadelta, RuleSuite, GoldenCases("adadelta_"),
                         CaseName);

TEST(AdadeltaTest, NamesTheBadField) {
  EXPECT_EQ(RuleError("adadelta { rho: 1 }"),
            "optimizer.adadelta.rho: 1 is not in [0, 1)");
  EXPECT_EQ(RuleError("adadelta { epsilon: -1 }"),
            "optimizer.adadelta.epsilon: -1 is not a finite number >= 0");
  EXPECT_EQ(RuleError("adadelta { weight_decay: -1 }"),
            "optimizer.adadelta.weight_decay: -1 is not a finite number >= 0");
}

}  // namespace
}  // namespace weir
