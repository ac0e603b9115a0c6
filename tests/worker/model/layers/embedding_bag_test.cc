#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kSquared[] = " loss { mean_squared_error {} }";

SparseSpec Spec() { return MakeSparseSpec({"t:2", "u:3"}, {"A", "B", "C"}); }

TEST(EmbeddingBagTest, PoolsTheRowsOfEveryBag) {
  const SparseBatch batch = {.features = {{{0, 2, 2}, {4, 9}, {2, -1}},
                                          {{0, 3, 4}, {9, 7, 9, 4}, {}}}};
  struct Case {
    std::string pooling;
    std::vector<float> outputs;  // [2 samples, features B A, dim 2]
  };
  // Rows of 4, 7, 9: {1, 2}, {3, -5}, {2, -4}.
  const std::vector<Case> cases = {
      {"SUM", {7, -13, 0, 8, 1, 2, 0, 0}},
      {"MEAN", {7.0f / 3, -13.0f / 3, 0, 8, 1, 2, 0, 0}},
      {"MAX", {3, -4, 2, 2, 1, 2, 0, 0}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.pooling);
    const auto tester = NetworkTester::Create(
                            "layer { name: 'e' embedding_bag { table: 't' "
                            "feature: 'B' feature: 'A' pooling: " +
                                c.pooling + " } } layer { name: 'f' " +
                                "flatten {} }" + kSquared,
                            {0}, nullptr, MakeSparseSpec({"t:2"}, {"A", "B"}))
                            .value();
    tester->SetBags(batch, 2);
    EXPECT_THAT(tester->tables()[0].batch.ids(), ElementsAre(4, 7, 9));
    tester->tables()[0].rows = {1, 2, 3, -5, 2, -4};
    const auto result =
        tester->network().Evaluate(nullptr, nullptr, 2, tester->table_inputs());
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->outputs,
                testing::Pointwise(testing::FloatEq(), c.outputs));
  }
}

TEST(EmbeddingBagTest, GradientIsTheDifferenceOfTheLoss) {
  for (const std::string pooling : {"SUM", "MEAN", "MAX"}) {
    SCOPED_TRACE(pooling);
    EXPECT_EQ(
        CheckModelGradients(
            "layer { name: 'e' embedding_bag { table: 'u' pooling: " + pooling +
                " } } layer { name: 't' tanh {} }"
                "layer { name: 'f' flatten {} }"
                "layer { name: 'd' dense { units: 2 } }" +
                kSquared,
            {}, 6, Spec()),
        "");
  }
}

// Three layers of one table, pooled in three ways, and one of another.
TEST(EmbeddingBagTest, GradientsOfLayersThatShareATableAreAdded) {
  EXPECT_EQ(CheckModelGradients(R"(
      layer { name: "a" embedding_bag { table: "u" feature: "A" feature: "B" } }
      layer { name: "b" embedding_bag { table: "t" feature: "A" } }
      layer { name: "c"
              embedding_bag { table: "u" feature: "C" feature: "A"
                              pooling: MAX } }
      layer { name: "d"
              embedding_bag { table: "u" feature: "B" feature: "C"
                              pooling: MEAN } }
      layer { name: "sum" input: "a" input: "c" input: "d" add {} }
      layer { name: "flat" flatten {} }
      layer { name: "flat_b" input: "b" flatten {} }
      layer { name: "all" input: "flat" input: "flat_b" input: "features"
              concat {} }
      layer { name: "act" tanh {} }
      loss { mean_squared_error {} })",
                                {4}, 7, Spec()),
            "");
}

// Logistic regression: nothing but rows trains.
TEST(EmbeddingBagTest, AModelMayHaveNoVariables) {
  const std::string model = R"(
      layer { name: "a" embedding_bag { table: "w" feature: "A" } }
      layer { name: "fa" flatten {} }
      layer { name: "b" embedding_bag { table: "w" feature: "B" } }
      layer { name: "fb" flatten {} }
      layer { name: "y" input: "fa" input: "fb" add {} }
      loss { sigmoid_cross_entropy {} })";
  EXPECT_EQ(
      CheckModelGradients(model, {}, 9, MakeSparseSpec({"w:1"}, {"A", "B"})),
      "");
}

TEST(EmbeddingBagTest, NormalisesAndConcatenatesVectors) {
  EXPECT_EQ(CheckModelGradients(R"(
      layer { name: "a" embedding_bag { table: "u" } }
      layer { name: "n" layer_norm {} }
      layer { name: "b" embedding_bag { table: "t" } }
      layer { name: "j" input: "n" input: "b" concat {} }
      layer { name: "r" relu {} }
      layer { name: "f" flatten {} }
      layer { name: "d" dense { units: 3 } }
      loss { mean_squared_error {} })",
                                {2}, 5, Spec()),
            "");
}

TEST(EmbeddingBagTest, SaysWhatTheJobOrTheDataDoNotHave) {
  const auto error = [](const std::string& bag, const SparseSpec& sparse,
                        const std::string& input = "") {
    return CreateError("layer { name: 'e' " + input + " embedding_bag { " +
                           bag + " } } layer { name: 'f' flatten {} }" +
                           kSquared,
                       {4}, sparse);
  };
  EXPECT_EQ(error("table: 't'", Spec()), "OK");
  EXPECT_THAT(error("table: 'x'", Spec()),
              HasSubstr("model.layer[0] 'e': table 'x' is not one of the "
                        "job's: 't', 'u'"));
  EXPECT_THAT(error("table: 't' feature: 'D'", Spec()),
              HasSubstr("model.layer[0] 'e': feature 'D' is not a categorical "
                        "feature of the data, which has A, B, C"));
  EXPECT_THAT(error("table: 't' feature: 'A' feature: 'A'", Spec()),
              HasSubstr("feature 'A' is named twice"));
  EXPECT_THAT(error("table: 't'", MakeSparseSpec({"t:2"}, {})),
              HasSubstr("the data has no categorical features"));
  EXPECT_THAT(error("table: 't'", MakeSparseSpec({"t:0"}, {"A"})),
              HasSubstr("model.layer[0] 'e': output has a dimension of 0"));
  EXPECT_THAT(error("table: 't'", Spec(), "input: 'features'"),
              HasSubstr("model.layer[0] 'e': has 1 inputs; it takes none"));
}

}  // namespace
}  // namespace weir
