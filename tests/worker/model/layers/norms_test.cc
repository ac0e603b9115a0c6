#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(BatchNormTest, GradientIsTheDifferenceOfTheLoss) {
  EXPECT_EQ(CheckModelGradients(R"(
      layer { name: "a" dense { units: 6 } }
      layer { name: "n" batch_norm { epsilon: 0.01 } }
      layer { name: "b" dense { units: 2 } }
      loss { mean_squared_error {} })",
                                {3}, 7),
            "");
  EXPECT_EQ(CheckModelGradients(R"(
      layer { name: "c" conv2d { filters: 3 kernel_size: 2 } }
      layer { name: "n" batch_norm { epsilon: 0.01 } }
      layer { name: "f" flatten {} }
      layer { name: "b" dense { units: 2 } }
      loss { mean_squared_error {} })",
                                {2, 3, 4}, 4),
            "");
}

TEST(BatchNormTest, BearsABatchOfOneRow) {
  auto tester = NetworkTester::Create(
                    "layer { name: 'n' batch_norm {} } "
                    "loss { mean_squared_error {} }",
                    {3})
                    .value();
  tester->MakeBatch(1, 1);
  ASSERT_TRUE(tester->Step().ok());
  EXPECT_EQ(tester->gradient("n/moving_variance")[0], 0.0f);
  EXPECT_EQ(tester->gradient("n/moving_mean")[0], tester->features()[0]);
}

TEST(BatchNormTest, SaysWhatDoesNotFit) {
  const auto error = [](const std::string& fields, std::vector<int64_t> shape) {
    return CreateError("layer { name: 'n' batch_norm { " + fields +
                           " } } loss { mean_squared_error {} }",
                       std::move(shape));
  };
  EXPECT_THAT(error("epsilon: 0", {3}), HasSubstr("[0] 'n': epsilon is 0"));
  EXPECT_THAT(error("momentum: 1.5", {3}), HasSubstr("momentum is 1.5"));
  EXPECT_THAT(error("", {3, 4}), HasSubstr("input is [batch, 3, 4]"));
}

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
