#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(DenseTest, GradientIsTheDifferenceOfTheLoss) {
  EXPECT_EQ(CheckModelGradients(R"(
      layer { name: "a" dense { units: 3 } }
      layer { name: "b" dense { units: 5 no_bias: true } }
      loss { mean_squared_error {} })",
                                {4}, 6),
            "");
}

TEST(DenseTest, WorksForOneRowAndOneUnit) {
  EXPECT_EQ(CheckModelGradients(R"(
      layer { name: "a" dense { units: 1 } }
      loss { sigmoid_cross_entropy {} })",
                                {1}, 1),
            "");
}

TEST(DenseTest, SaysWhatDoesNotFit) {
  EXPECT_THAT(CreateError("layer { name: 'a' dense {} } "
                          "loss { mean_squared_error {} }",
                          {4}),
              HasSubstr("model.layer[0] 'a': units is 0"));
  EXPECT_THAT(CreateError("layer { name: 'a' dense { units: 2 } } "
                          "loss { mean_squared_error {} }",
                          {1, 2, 2}),
              HasSubstr("input is [batch, 1, 2, 2], dense takes [batch, in]"));
  EXPECT_THAT(CreateError("layer { name: 'a' dense { units: 2 "
                          "kernel_initializer { normal_stddev: -1 } } } "
                          "loss { mean_squared_error {} }",
                          {4}),
              HasSubstr("'a': kernel_initializer: normal_stddev is -1"));
}

}  // namespace
}  // namespace weir
