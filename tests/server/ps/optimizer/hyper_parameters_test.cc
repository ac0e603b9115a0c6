#include "server/ps/optimizer/hyper_parameters.h"

#include <cfloat>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace weir {
namespace {

const double kNan = std::nan("");
const double kInf = std::numeric_limits<double>::infinity();

TEST(HyperParametersTest, TheMessageNamesFieldValueAndRange) {
  EXPECT_EQ(CheckUnitOpen("optimizer.adam", "beta1", 1.5).message(),
            "optimizer.adam.beta1: 1.5 is not in [0, 1)");
  EXPECT_EQ(CheckNonNegative("a", "b", -1).message(),
            "a.b: -1 is not a finite number >= 0");
  EXPECT_EQ(CheckNonNegative("a", "b", -1).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(HyperParametersTest, BoundsAreInsideOrOutsideAsTheyAreWritten) {
  EXPECT_TRUE(CheckNonNegative("", "", 0).ok());
  EXPECT_FALSE(CheckPositive("", "", 0).ok());
  EXPECT_TRUE(CheckPositive("", "", DBL_MIN).ok());
  EXPECT_TRUE(CheckUnitClosed("", "", 0).ok());
  EXPECT_TRUE(CheckUnitClosed("", "", 1).ok());
  EXPECT_FALSE(CheckUnitClosed("", "", std::nextafter(1.0, 2.0)).ok());
  EXPECT_TRUE(CheckUnitOpen("", "", 0).ok());
  EXPECT_TRUE(CheckUnitOpen("", "", std::nextafter(1.0, 0.0)).ok());
  EXPECT_FALSE(CheckUnitOpen("", "", 1).ok());
  EXPECT_FALSE(CheckUnitOpen("", "", -DBL_MIN).ok());
}

TEST(HyperParametersTest, RefusesWhatAFloatCannotHold) {
  for (const double value : {kNan, kInf, -kInf, 2.0 * FLT_MAX}) {
    EXPECT_FALSE(CheckNonNegative("", "", value).ok()) << value;
    EXPECT_FALSE(CheckPositive("", "", value).ok()) << value;
    EXPECT_FALSE(CheckUnitClosed("", "", value).ok()) << value;
    EXPECT_FALSE(CheckUnitOpen("", "", value).ok()) << value;
  }
  EXPECT_TRUE(CheckPositive("", "", FLT_MAX).ok());
}

TEST(HyperParametersTest, AMomentumNeedsABufferThatWasDeclared) {
  EXPECT_TRUE(CheckBufferedMomentum("g", "sgd", 0.9, 0.5).ok());
  EXPECT_TRUE(CheckBufferedMomentum("g", "sgd", 0.9, 0).ok());
  EXPECT_FALSE(CheckBufferedMomentum("g", "sgd", 0.9, -0.5).ok());
  // Even 0: who sends a momentum expects the optimizer to have one.
  const absl::Status none = CheckBufferedMomentum("g", "sgd", 0, 0);
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(none.message().find("g.momentum: sgd was declared with momentum 0"),
            std::string::npos);
}

}  // namespace
}  // namespace weir
