#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What the layer `kind` makes of `x`, two numbers a sample, and of bags of two
// features, whose table has the row {2, 3} for id 5 and {-1, 4} for id 6.
std::vector<float> OutputsOf(const std::string& kind,
                             const std::vector<float>& x,
                             const SparseBatch& bags) {
  const auto tester =
      NetworkTester::Create(R"(
          layer { name: "e" embedding_bag { table: "t" } }
          layer { name: "pairs" input: "features" input: "e" )" +
                                kind + R"( {} }
          loss { mean_squared_error {} })",
                            {2}, nullptr, MakeSparseSpec({"t:2"}, {"A", "B"}))
          .value();
  const auto samples = static_cast<int64_t>(x.size()) / 2;
  tester->SetBags(bags, samples);
  tester->tables()[0].rows = {2, 3, -1, 4};
  const auto result = tester->network().Evaluate(x.data(), nullptr, samples,
                                                 tester->table_inputs());
  EXPECT_TRUE(result.ok()) << result.status();
  return {result->outputs.begin(), result->outputs.end()};
}

TEST(FactorizationMachineTest, SumsTheProductsOfPairs) {
  // {1, 10}, {2, 3}, {-1, 4} and {7, 0.5}, {0, 0}, {2, 3}.
  EXPECT_THAT(
      OutputsOf("factorization_machine", {1, 10, 7, 0.5},
                {.features = {{{0, 1, 1}, {5}, {}}, {{0, 1, 2}, {6, 5}, {}}}}),
      ElementsAre(32.0f + 39.0f + 10.0f, 15.5f));
}

TEST(FactorizationMachineTest, GradientIsTheDifferenceOfTheLoss) {
  EXPECT_EQ(CheckModelGradients(R"(
      layer { name: "e" embedding_bag { table: "t" } }
      layer { name: "d" input: "features" dense { units: 3 } }
      layer { name: "fm" input: "d" input: "e" input: "d"
              factorization_machine {} }
      layer { name: "alone" input: "e" factorization_machine {} }
      layer { name: "y" input: "fm" input: "alone" add {} }
      loss { sigmoid_cross_entropy {} })",
                                {4}, 6, MakeSparseSpec({"t:3"}, {"A", "B"})),
            "");
}

TEST(FactorizationMachineTest, NamesInputsThatDoNotFit) {
  const SparseSpec sparse = MakeSparseSpec({"t:3"}, {"A"});
  const std::string loss = " loss { mean_squared_error {} }";
  EXPECT_THAT(CreateError("layer { name: 'e' embedding_bag { table: 't' } } "
                          "layer { name: 'm' input: 'e' input: 'features' "
                          "factorization_machine {} }" +
                              loss,
                          {4}, sparse),
              HasSubstr("model.layer[1] 'm': takes vectors of one dim, not "
                        "[batch, 1, 3] and [batch, 4]"));
  EXPECT_THAT(CreateError("layer { name: 'e' embedding_bag { table: 't' } } "
                          "layer { name: 'm' factorization_machine {} }" +
                              loss,
                          {4}, sparse),
              HasSubstr("model.layer[1] 'm': its input [batch, 1, 3] is one "
                        "vector; it takes two or more"));
}

TEST(DotInteractionTest, PairsComeInTheOrderOfTheLowerTriangle) {
  EXPECT_THAT(OutputsOf("dot_interaction", {1, 10},
                        {.features = {{{0, 1}, {5}, {}}, {{0, 1}, {6}, {}}}}),
              ElementsAre(32.0f, 39.0f, 10.0f));
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
