#include "server/ps/optimizer/optimizer.h"

#include "tests/server/ps/optimizer/rule_suite.h"

namespace weir {
namespace {

TEST(OptimizerTest, MakesEveryMember) {
  for (const std::string name :
       {"sgd", "adagrad", "rmsprop", "adadelta", "adam", "adamw", "ftrl"}) {
    EXPECT_EQ(MakeRule(name + " {}")->name(), name);
  }
  EXPECT_EQ(MakeRule("moving_average 0.5")->name(), "moving_average");
}

TEST(OptimizerTest, AsksForAKind) {
  EXPECT_EQ(RuleError(""),
            "optimizer: no kind is set; choose one of sgd, adagrad, rmsprop, "
            "adadelta, adam, adamw, ftrl, for example \"optimizer { sgd {} "
            "}\"");
}

TEST(OptimizerTest, TakesAWeightDecayThatCameWithThePush) {
  for (const std::string name :
       {"sgd", "adagrad", "rmsprop", "adadelta", "adam", "adamw"}) {
    const auto own = MakeRule(name + " { weight_decay: 0.25 }");
    const auto other = MakeRule(name + " { weight_decay: 0.5 }");
    RuleState expected = MakeState(*own, GoldenStart());
    RuleState replaced = MakeState(*other, GoldenStart());
    RuleState kept = MakeState(*other, GoldenStart());
    Step(*own, {0, 0.1, {}}, GoldenGradient(0), &expected);
    Step(*other, {0, 0.1, 0.25}, GoldenGradient(0), &replaced);
    Step(*other, {0, 0.1, {}}, GoldenGradient(0), &kept);
    EXPECT_TRUE(SameBits(expected, replaced)) << name;
    EXPECT_FALSE(SameBits(expected, kept)) << name;
  }
}

}  // namespace
}  // namespace weir
