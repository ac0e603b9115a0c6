#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(PoolTest, GradientIsTheDifferenceOfTheLoss) {
  for (const std::string kind : {"max_pool", "average_pool"}) {
    EXPECT_EQ(CheckModelGradients(
                  "layer { name: 'c' conv2d { filters: 3 kernel_size: 1 } } "
                  "layer { name: 'p' " +
                      kind +
                      " { size: 3 stride: 2 padding: 1 } } "
                      "layer { name: 'f' flatten {} } "
                      "loss { mean_squared_error {} }",
                  {2, 5, 4}, 3),
              "")
        << kind;
  }
}

TEST(PoolTest, SaysWhatDoesNotFit) {
  const auto error = [](const std::string& fields, std::vector<int64_t> shape) {
    return CreateError("layer { name: 'a' max_pool { " + fields +
                           " } } loss { mean_squared_error {} }",
                       std::move(shape));
  };
  EXPECT_THAT(error("", {1, 5, 5}), HasSubstr("[0] 'a': size is 0"));
  EXPECT_THAT(error("size: 3 padding: 2", {1, 5, 5}),
              HasSubstr("padding 2 is over half the size 3"));
  EXPECT_THAT(error("size: 6", {1, 5, 9}),
              HasSubstr("size 6 is larger than the input [batch, 1, 5, 9]"));
  EXPECT_THAT(error("size: 2", {9}), HasSubstr("input is [batch, 9], pooling"));
}

}  // namespace
}  // namespace weir
