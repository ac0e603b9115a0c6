#include "worker/model/layers/dot_interaction.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DotInteractionTest, PairsComeInTheOrderOfTheLowerTriangle) {
  const auto tester =
      NetworkTester::Create(R"(
          layer { name: "e" embedding_bag { table: "t" } }
          layer { name: "dots" input: "features" input: "e"
                  dot_interaction {} }
          loss { mean_squared_error {} })",
                            {2}, nullptr, MakeSparseSpec({"t:2"}, {"A", "B"}))
          .value();
  tester->SetBags({.features = {{{0, 1}, {5}, {}}, {{0, 1}, {6}, {}}}}, 1);
  tester->tables()[0].rows = {2, 3, -1, 4};
  const std::vector<float> x = {1, 10};
  const auto result =
      tester->network().Evaluate(x.data(), nullptr, 1, tester->table_inputs());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->outputs, ElementsAre(32.0f, 39.0f, 10.0f));
}

TEST(DotInteractionTest, GradientIsTheDifferenceOfTheLoss) {
  EXPECT_EQ(
      CheckModelGradients(R"(
      layer { name: "bottom" input: "features" dense { units: 3 } }
      layer { name: "e" embedding_bag { table: "t" } }
      layer { name: "dots" input: "bottom" input: "e" dot_interaction {} }
      layer { name: "own" input: "e" dot_interaction {} }
      layer { name: "top" input: "bottom" input: "dots" input: "own" concat {} }
      layer { name: "y" dense { units: 1 } }
      loss { sigmoid_cross_entropy {} })",
                          {4}, 6, MakeSparseSpec({"t:3"}, {"A", "B", "C"})),
      "");
}

TEST(DotInteractionTest, NamesInputsThatDoNotFit) {
  const std::string loss = " loss { mean_squared_error {} }";
  EXPECT_THAT(
      CreateError("layer { name: 'd' dot_interaction {} }" + loss, {4}),
      HasSubstr("model.layer[0] 'd': its input [batch, 4] is one vector"));
  EXPECT_THAT(
      CreateError("layer { name: 'd' dot_interaction {} }" + loss, {1, 4, 4}),
      HasSubstr("model.layer[0] 'd': input is [batch, 1, 4, 4]; vectors are"));
}

}  // namespace
}  // namespace weir
