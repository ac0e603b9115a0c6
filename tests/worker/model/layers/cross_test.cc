#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kLoss[] = " loss { mean_squared_error {} }";

TEST(CrossTest, MultipliesTheInputByALinearMapOfItself) {
  const auto tester =
      NetworkTester::Create(std::string("layer { name: 'c' cross {} }") + kLoss,
                            {2})
          .value();
  const std::vector<float> kernel = {1, 2, 3, 4};
  std::copy(kernel.begin(), kernel.end(), tester->parameter("c/kernel_0"));
  tester->parameter("c/bias_0")[0] = 0.5f;
  tester->parameter("c/bias_0")[1] = -1.0f;
  const std::vector<float> x = {10, 2};
  // x W + b = {16.5, 27}.
  EXPECT_THAT(tester->network().Evaluate(x.data(), nullptr, 1)->outputs,
              ElementsAre(175.0f, 56.0f));
}

TEST(CrossTest, GradientIsTheDifferenceOfTheLoss) {
  for (const std::string layers : {"1", "2", "3"}) {
    SCOPED_TRACE(layers);
    // Of an input that trains and of one that does not.
    EXPECT_EQ(CheckModelGradients(
                  "layer { name: 'd' dense { units: 3 } }"
                  "layer { name: 'c' input: 'd' cross { layers: " +
                      layers +
                      " } } layer { name: 'g' input: 'features' cross { "
                      "layers: " +
                      layers +
                      " } } layer { name: 'j' input: 'c' input: 'g' input: 'd' "
                      "concat {} }" +
                      kLoss,
                  {4}, 5),
              "");
  }
}

TEST(CrossTest, TakesVectors) {
  EXPECT_THAT(CreateError(std::string("layer { name: 'c' cross {} }") + kLoss,
                          {1, 2, 2}),
              HasSubstr("model.layer[0] 'c': input is [batch, 1, 2, 2], cross "
                        "takes [batch, width]; put a flatten before it"));
}

}  // namespace
}  // namespace weir
