#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(JoinTest, GradientIsTheDifferenceOfTheLoss) {
  EXPECT_EQ(CheckModelGradients(R"(
      layer { name: "a" conv2d { filters: 2 kernel_size: 1 } }
      layer { name: "b" input: "a" tanh {} }
      layer { name: "j" input: "a" input: "b" input: "features" concat {} }
      layer { name: "k" input: "j" input: "j" input: "j" add {} }
      layer { name: "f" flatten {} }
      loss { mean_squared_error {} })",
                                {2, 3, 2}, 3),
            "");
}

TEST(JoinTest, SaysBothShapesWhenTheyDoNotFit) {
  const std::string two =
      "layer { name: 'a' input: 'features' dense { units: 2 } } "
      "layer { name: 'b' input: 'features' dense { units: 3 } } ";
  EXPECT_THAT(
      CreateError(two + "layer { name: 's' input: 'a' input: 'b' add {} } "
                        "loss { mean_squared_error {} }",
                  {4}),
      HasSubstr("model.layer[2] 's': add takes inputs of one shape, not "
                "[batch, 2] and [batch, 3]"));
  EXPECT_THAT(
      CreateError("layer { name: 'p' max_pool { size: 2 } } "
                  "layer { name: 's' input: 'p' input: 'features' concat {} } "
                  "loss { mean_squared_error {} }",
                  {1, 4, 4}),
      HasSubstr("not [batch, 1, 2, 2] and [batch, 1, 4, 4]"));
}

}  // namespace
}  // namespace weir
