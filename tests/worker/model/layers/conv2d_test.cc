#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(Conv2dTest, GradientIsTheDifferenceOfTheLoss) {
  EXPECT_EQ(CheckModelGradients(R"(
      layer { name: "a" conv2d { filters: 3 kernel_size: 3 padding: 1 } }
      layer { name: "b" conv2d { filters: 2 kernel_size: 2 stride: 2
                                 no_bias: true } }
      layer { name: "f" flatten {} }
      loss { mean_squared_error {} })",
                                {2, 5, 4}, 3),
            "");
}

TEST(Conv2dTest, SaysWhatDoesNotFit) {
  const auto error = [](const std::string& fields, std::vector<int64_t> shape) {
    return CreateError("layer { name: 'a' conv2d { " + fields +
                           " } } loss { mean_squared_error {} }",
                       std::move(shape));
  };
  EXPECT_THAT(error("kernel_size: 3", {1, 5, 5}),
              HasSubstr("model.layer[0] 'a': filters is 0"));
  EXPECT_THAT(error("filters: 3", {1, 5, 5}), HasSubstr("kernel_size is 0"));
  EXPECT_THAT(error("filters: 3 kernel_size: 3", {5}),
              HasSubstr("input is [batch, 5], conv2d takes [batch, channels"));
  EXPECT_THAT(
      error("filters: 3 kernel_size: 7 padding: 0", {1, 5, 9}),
      HasSubstr("kernel_size 7 is larger than the input [batch, 1, 5, 9]"));
  EXPECT_THAT(error("filters: 3 kernel_size: 1 stride: 4000000000", {1, 5, 5}),
              HasSubstr("must be <= 1048576"));
}

}  // namespace
}  // namespace weir
