#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

TEST(ActivationTest, GradientIsTheDifferenceOfTheLoss) {
  for (const std::string kind : {"relu", "sigmoid", "tanh"}) {
    EXPECT_EQ(CheckModelGradients(
                  "layer { name: 'a' dense { units: 6 } } layer { name: 'b' " +
                      kind + " {} } layer { name: 'c' dense { units: 2 } } " +
                      "loss { mean_squared_error {} }",
                  {3}, 5),
              "")
        << kind;
  }
}

}  // namespace
}  // namespace weir
