#include "proto/job/push_checks.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

// What is wrong with `hyper` for the groups of a declaration; empty if nothing.
std::string ErrorOf(const std::string& groups, const Hyper& hyper) {
  Declaration declaration;
  EXPECT_TRUE(
      google::protobuf::TextFormat::ParseFromString(groups, &declaration));
  return std::string(CheckHyper(declaration.group(), hyper).message());
}

std::string MomentumError(const std::string& optimizer, double momentum) {
  Hyper hyper;
  hyper.set_momentum(momentum);
  return ErrorOf(absl::StrCat("group { optimizer { ", optimizer, " } }"),
                 hyper);
}

TEST(PushChecksTest, AWeightIsAFiniteNumberFromZeroOn) {
  EXPECT_TRUE(CheckWeight(0.0).ok());
  EXPECT_TRUE(CheckWeight(2.5).ok());
  EXPECT_EQ(CheckWeight(-1.0).message(),
            "weight: -1 is not a finite number >= 0");
  EXPECT_FALSE(CheckWeight(std::nan("")).ok());
  EXPECT_FALSE(CheckWeight(std::numeric_limits<double>::infinity()).ok());
}

TEST(PushChecksTest, SettingsAreOfAGroupThatExists) {
  Hyper hyper;
  hyper.set_group(1);
  EXPECT_EQ(ErrorOf("group {} group {}", hyper), "");
  EXPECT_EQ(ErrorOf("group {}", hyper),
            "settings of group 1: the job has 1 groups");
}

TEST(PushChecksTest, RatesAreFiniteAsAFloat) {
  const std::string group = "group { name: 'main' optimizer { sgd {} } }";
  for (const double good : {0.0, 0.5, 3e38}) {
    Hyper hyper;
    hyper.set_learning_rate(good);
    hyper.set_weight_decay(good);
    EXPECT_EQ(ErrorOf(group, hyper), "") << good;
  }
  Hyper hyper;
  hyper.set_learning_rate(-0.5);
  EXPECT_EQ(ErrorOf(group, hyper),
            "settings of group 0 'main'.learning_rate: -0.5 is not a finite "
            "number >= 0");
  for (const double bad : {std::nan(""), HUGE_VAL, 1e39}) {
    hyper.set_learning_rate(bad);
    EXPECT_NE(ErrorOf(group, hyper), "") << bad;
  }
  hyper.set_learning_rate(0.5);
  hyper.set_weight_decay(-1.0);
  EXPECT_EQ(ErrorOf(group, hyper),
            "settings of group 0 'main'.weight_decay: -1 is not a finite "
            "number >= 0");
}

TEST(PushChecksTest, AMomentumIsTakenWhereOneIsKept) {
  for (const std::string name : {"sgd", "rmsprop"}) {
    const std::string kept = name + " { momentum: 0.5 }";
    EXPECT_EQ(MomentumError(kept, 0.0), "");
    EXPECT_EQ(MomentumError(kept, 2.0), "");
    EXPECT_EQ(MomentumError(kept, -1.0),
              "settings of group 0.momentum: -1 is not a finite number >= 0");
    EXPECT_NE(MomentumError(kept, HUGE_VAL), "");
    EXPECT_EQ(MomentumError(name + " {}", 0.9),
              absl::StrCat("settings of group 0.momentum: ", name,
                           " was declared with momentum 0 and keeps none; "
                           "declare it with the largest momentum that will "
                           "come"));
  }
  EXPECT_EQ(MomentumError("adagrad {}", 0.9),
            "settings of group 0.momentum: adagrad has none; declare sgd or "
            "rmsprop with a momentum, adam or adamw");
}

TEST(PushChecksTest, AMomentumOfAdamIsABeta1) {
  for (const std::string optimizer : {"adam {}", "adamw {}"}) {
    EXPECT_EQ(MomentumError(optimizer, 0.0), "");
    EXPECT_EQ(MomentumError(optimizer, 0.99), "");
    EXPECT_EQ(MomentumError(optimizer, 1.0),
              "settings of group 0.momentum: 1 is not in [0, 1)");
    EXPECT_NE(MomentumError(optimizer, std::nan("")), "");
  }
}

TEST(PushChecksTest, NobodyReadsTheMomentumOfAFrozenGroup) {
  Hyper hyper;
  hyper.set_momentum(0.9);
  EXPECT_EQ(ErrorOf("group { frozen: true optimizer { sgd {} } }", hyper), "");
}

}  // namespace
}  // namespace weir
