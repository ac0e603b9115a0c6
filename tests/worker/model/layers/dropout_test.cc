#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(DropoutTest, GradientIsTheDifferenceOfTheLossUnderOneMask) {
  EXPECT_EQ(CheckModelGradients(R"(
      layer { name: "a" dense { units: 9 } }
      layer { name: "d" dropout { rate: 0.4 } }
      layer { name: "b" dense { units: 2 } }
      loss { mean_squared_error {} })",
                                {3}, 5),
            "");
}

TEST(DropoutTest, DropsAboutItsRateAndAnotherLayerDropsOthers) {
  auto tester = NetworkTester::Create(R"(
      layer { name: "d" dropout { rate: 0.25 } }
      layer { name: "e" input: "features" dropout { rate: 0.25 } }
      layer { name: "j" input: "d" input: "e" concat {} }
      layer { name: "n" layer_norm {} }
      loss { mean_squared_error {} })",
                                      {1})
                    .value();
  tester->MakeBatch(1, 4000);
  tester->features().assign(4000, 3.0f);
  // Row (a, b) normalised is (0, 0) where a = b: the loss tells the rest. Both
  // kept: 9/16, both dropped: 1/16, so 3/8 of rows give (1, -1) or (-1, 1).
  tester->labels().assign(8000, 0.0f);
  for (int i = 0; i < 2; ++i) {
    tester->parameter("n/scale")[i] = 1.0f;
    tester->parameter("n/offset")[i] = 0.0f;
  }
  EXPECT_NEAR(tester->Step().value().loss, 0.375, 0.03);
}

TEST(DropoutTest, RefusesARateThatIsNoFraction) {
  for (const std::string rate : {"1", "-0.1", "nan"}) {
    EXPECT_THAT(CreateError("layer { name: 'd' dropout { rate: " + rate +
                                " } } loss { mean_squared_error {} }",
                            {3}),
                HasSubstr("model.layer[0] 'd': rate is"));
  }
}

}  // namespace
}  // namespace weir
