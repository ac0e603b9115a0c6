#include "server/ps/optimizer/optimizer.h"

#include "tests/server/ps/optimizer/optimizer_suite.h"

namespace weir {
namespace {

TEST(OptimizerTest, MakesEveryMember) {
  for (const std::string name :
       {"sgd", "adagrad", "rmsprop", "adadelta", "adam", "adamw", "ftrl"}) {
    EXPECT_EQ(MakeOptimizer(name + " {}")->name(), name);
  }
  EXPECT_EQ(MakeOptimizer("moving_average 0.5")->name(), "moving_average");
}

TEST(OptimizerTest, AsksForAKind) {
  EXPECT_EQ(OptimizerError(""),
            "optimizer: no kind is set; choose one of sgd, adagrad, rmsprop, "
            "adadelta, adam, adamw, ftrl");
}

TEST(OptimizerTest, TakesAWeightDecayThatCameWithThePush) {
  for (const std::string name :
       {"sgd", "adagrad", "rmsprop", "adadelta", "adam", "adamw"}) {
    const auto own = MakeOptimizer(name + " { weight_decay: 0.25 }");
    const auto other = MakeOptimizer(name + " { weight_decay: 0.5 }");
    OptimizerState expected = MakeState(*own, GoldenStart());
    OptimizerState replaced = MakeState(*other, GoldenStart());
    OptimizerState kept = MakeState(*other, GoldenStart());
    Step(*own, {0, 0.1, {}}, GoldenGradient(0), &expected);
    Step(*other, {0, 0.1, 0.25}, GoldenGradient(0), &replaced);
    Step(*other, {0, 0.1, {}}, GoldenGradient(0), &kept);
    EXPECT_TRUE(SameBits(expected, replaced)) << name;
    EXPECT_FALSE(SameBits(expected, kept)) << name;
  }
}

}  // namespace
}  // namespace weir
