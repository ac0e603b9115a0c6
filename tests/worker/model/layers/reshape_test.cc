#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

TEST(ReshapeTest, FlattenKeepsTheOrderOfTheJobSpec) {
  // Channels first, whatever the image's format inside: an identity pooling
  // makes it channels-last before flatten.
  auto tester = NetworkTester::Create(R"(
      layer { name: "p" max_pool { size: 1 } }
      layer { name: "f" flatten {} }
      layer { name: "n" batch_norm { epsilon: 1e-9 } }
      loss { mean_squared_error {} })",
                                      {2, 2, 2})
                    .value();
  for (int i = 0; i < 8; ++i) {
    tester->parameter("n/scale")[i] = 1.0f;
    tester->parameter("n/offset")[i] = 0.0f;
    tester->parameter("n/moving_mean")[i] = 0.0f;
    tester->parameter("n/moving_variance")[i] = 1.0f;
  }
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_THAT(tester->network().Evaluate(x.data(), nullptr, 1)->outputs,
              testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(ReshapeTest, GradientPassesFormatChangesAndSharedInputs) {
  EXPECT_EQ(CheckModelGradients(R"(
      layer { name: "c" conv2d { filters: 3 kernel_size: 1 } }
      layer { name: "f" input: "c" flatten {} }
      layer { name: "g" input: "c" flatten {} }
      layer { name: "t" tanh {} }
      layer { name: "p" input: "c" average_pool { size: 2 } }
      layer { name: "h" flatten {} }
      layer { name: "j" input: "f" input: "t" input: "h" concat {} }
      layer { name: "out" dense { units: 2 } }
      loss { mean_squared_error {} })",
                                {2, 2, 3}, 3),
            "");
}

}  // namespace
}  // namespace weir
