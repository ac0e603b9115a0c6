#include "worker/model/layers/layer_norm.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(LayerNormTest, GradientIsTheDifferenceOfTheLoss) {
  EXPECT_EQ(CheckModelGradients(R"(
      layer { name: "a" dense { units: 6 } }
      layer { name: "n" layer_norm { epsilon: 0.01 } }
      layer { name: "b" dense { units: 2 } }
      loss { mean_squared_error {} })",
                                {3}, 5),
            "");
}

TEST(LayerNormTest, NormalisesAnImageOverItsColumns) {
  EXPECT_EQ(CheckModelGradients(R"(
      layer { name: "c" conv2d { filters: 2 kernel_size: 1 } }
      layer { name: "n" layer_norm { epsilon: 0.01 } }
      layer { name: "p" average_pool { size: 2 } }
      layer { name: "f" flatten {} }
      loss { mean_squared_error {} })",
                                {2, 3, 5}, 3),
            "");
}

TEST(LayerNormTest, RefusesAnEpsilonThatMayDivideByZero) {
  EXPECT_THAT(CreateError("layer { name: 'n' layer_norm { epsilon: 0 } } "
                          "loss { mean_squared_error {} }",
                          {3}),
              HasSubstr("model.layer[0] 'n': epsilon is 0"));
}

}  // namespace
}  // namespace weir
