#include "worker/model/graph.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kLoss[] = " loss { softmax_cross_entropy {} }";

std::string ErrorOf(const std::string& layers,
                    std::vector<int64_t> shape = {4}) {
  return CreateError(layers + kLoss, std::move(shape));
}

TEST(GraphTest, NamesTheLayerThatIsWrong) {
  EXPECT_THAT(ErrorOf(""), StartsWith("model.layer: the model has no layer"));
  EXPECT_THAT(ErrorOf("layer { name: 'a' }"),
              StartsWith("model.layer[0] 'a': no kind is set"));
  EXPECT_THAT(ErrorOf("layer { dense { units: 2 } }"),
              StartsWith("model.layer[0] '': name must be"));
  EXPECT_THAT(ErrorOf("layer { name: 'a/b' dense { units: 2 } }"),
              StartsWith("model.layer[0] 'a/b': name must be"));
  EXPECT_THAT(ErrorOf("layer { name: 'features' dense { units: 2 } }"),
              HasSubstr("name is reserved"));
  EXPECT_THAT(ErrorOf("layer { name: 'a' dense { units: 2 } }"
                      "layer { name: 'a' relu {} }"),
              StartsWith("model.layer[1] 'a': name is used by an earlier"));
  EXPECT_THAT(ErrorOf("layer { name: 'a' input: 'b' dense { units: 2 } }"
                      "layer { name: 'b' relu {} }"),
              StartsWith("model.layer[0] 'a': input 'b' names no earlier"));
  EXPECT_THAT(ErrorOf("layer { name: 'a' input: 'a' dense { units: 2 } }"),
              HasSubstr("input 'a' names no earlier layer"));
  EXPECT_THAT(ErrorOf("layer { name: 'a' dense { units: 2 } }"
                      "layer { name: 'b' input: 'a' input: 'a' relu {} }"),
              HasSubstr("model.layer[1] 'b': has 2 inputs; it takes one"));
  EXPECT_THAT(ErrorOf("layer { name: 'a' add {} }"),
              HasSubstr("has 1 inputs; it takes two or more"));
}

TEST(GraphTest, RefusesALayerThatNobodyUses) {
  EXPECT_THAT(
      ErrorOf("layer { name: 'a' dense { units: 2 } }"
              "layer { name: 'b' input: 'features' dense { units: 2 } }"),
      StartsWith("model.layer[0] 'a': no layer and not the loss uses"));
}

TEST(GraphTest, RefusesALossThatDoesNotFit) {
  const std::string dense = "layer { name: 'a' dense { units: 3 } }";
  EXPECT_THAT(CreateError(dense, {4}), StartsWith("model.loss: no kind"));
  EXPECT_THAT(CreateError(dense + "loss { sigmoid_cross_entropy {} }", {4}),
              HasSubstr("input is [batch, 3], this loss takes [batch, 1]"));
  EXPECT_THAT(
      CreateError(dense + "loss { input: 'x' mean_squared_error {} }", {4}),
      HasSubstr("model.loss: input 'x' names no earlier layer"));
  EXPECT_THAT(ErrorOf("layer { name: 'a' dense { units: 1 } }"),
              HasSubstr("with two classes or more"));
  EXPECT_THAT(
      ErrorOf("layer { name: 'c' conv2d { filters: 2 kernel_size: 1 } }",
              {1, 3, 3}),
      HasSubstr("input is [batch, 2, 3, 3], this loss takes"));
  EXPECT_THAT(ErrorOf("layer { name: 'a' relu {} }"),
              HasSubstr("depends on no variable"));
}

TEST(GraphTest, RefusesSizesBeyondTheLayout) {
  EXPECT_THAT(
      ErrorOf("layer { name: 'a' dense { units: 4000000000 } }", {100000000}),
      HasSubstr("model.layer[0] 'a': kernel has 4e+17 elements"));
  EXPECT_THAT(ErrorOf("layer { name: 'a' dense { units: 2 } }", {0}),
              StartsWith("features has a dimension of 0"));
  EXPECT_THAT(ErrorOf("layer { name: 'a' dense { units: 2 } }", {}),
              StartsWith("features: a sample has no dimension"));
}

TEST(GraphTest, SharesMemoryOnlyWhereNobodyReadsItAgain) {
  const Graph graph = BuildGraph(ParseModel(R"(
          layer { name: "a" dense { units: 4 } }
          layer { name: "r" relu {} }      # over a
          layer { name: "d" dropout { rate: 0.5 } }  # relu keeps its output
          layer { name: "t" tanh {} }      # over d
          layer { name: "b" dense { units: 4 } }
          layer { name: "s" sigmoid {} }   # b is read by "sum" too
          layer { name: "sum" input: "b" input: "s" add {} }
          loss { softmax_cross_entropy {} })"),
                                 {4})
                          .value();
  ASSERT_EQ(graph.tensors.size(), 8u);
  EXPECT_EQ(graph.tensors[2].value_root, 1);
  EXPECT_EQ(graph.tensors[3].value_root, 3);
  EXPECT_EQ(graph.tensors[4].value_root, 3);
  EXPECT_EQ(graph.tensors[6].value_root, 6);
  EXPECT_EQ(graph.tensors[4].gradient_root, 1);
  EXPECT_EQ(graph.tensors[6].gradient_root, 6);
}

TEST(GraphTest, ChangesAnImagesFormatOnceForAllThatWantIt) {
  const Graph graph = BuildGraph(ParseModel(R"(
          layer { name: "p" input: "features" max_pool { size: 2 } }
          layer { name: "q" input: "features" average_pool { size: 2 } }
          layer { name: "sum" input: "p" input: "q" add {} }
          layer { name: "f" flatten {} }
          layer { name: "a" dense { units: 4 } }
          loss { softmax_cross_entropy {} })"),
                                 {3, 4, 4})
                          .value();
  // Two changes: features to channels-last, the sum back before flatten.
  EXPECT_EQ(graph.nodes.size(), 5u + 2u);
}

TEST(GraphTest, ListsTheTablesThatLayersReadInForwardOrder) {
  const Graph graph =
      BuildGraph(ParseModel(R"(
          layer { name: "a" embedding_bag { table: "u" feature: "B" } }
          layer { name: "b" embedding_bag { table: "t" pooling: MAX } }
          layer { name: "c" embedding_bag { table: "u" feature: "C"
                                            feature: "A" pooling: MEAN } }
          layer { name: "fa" input: "a" flatten {} }
          layer { name: "fb" input: "b" flatten {} }
          layer { name: "fc" input: "c" flatten {} }
          layer { name: "j" input: "fa" input: "fb" input: "fc" concat {} }
          loss { softmax_cross_entropy {} })"),
                 {},
                 MakeSparseSpec({"t:2", "unused:4", "u:3"}, {"A", "B", "C"}))
          .value();
  ASSERT_EQ(graph.tables.size(), 2u);
  EXPECT_EQ(graph.tables[0].name, "u");
  EXPECT_EQ(graph.tables[0].dim, 3);
  ASSERT_EQ(graph.tables[0].uses.size(), 2u);
  EXPECT_THAT(graph.tables[0].uses[0].features, ElementsAre(1));
  EXPECT_EQ(graph.tables[0].uses[0].pooling, Pooling::kSum);
  EXPECT_THAT(graph.tables[0].uses[1].features, ElementsAre(2, 0));
  EXPECT_EQ(graph.tables[0].uses[1].pooling, Pooling::kMean);
  EXPECT_EQ(graph.tables[1].name, "t");
  EXPECT_THAT(graph.tables[1].uses[0].features, ElementsAre(0, 1, 2));
  EXPECT_EQ(graph.nodes[2].table, 0);
  EXPECT_EQ(graph.nodes[2].use, 1);
  EXPECT_EQ(graph.nodes[3].table, -1);
  EXPECT_THAT(graph.tensors[3].info.dims, ElementsAre(2, 3));
}

TEST(GraphTest, CategoricalFeaturesAreNoInputOfALayer) {
  const SparseSpec sparse = MakeSparseSpec({"t:2"}, {"A"});
  const std::string dense = "layer { name: 'd' dense { units: 2 } }";
  EXPECT_THAT(
      CreateError(dense + kLoss, {}, sparse),
      StartsWith("model.layer[0] 'd': its input is the data's features, "
                 "which are all categorical"));
  EXPECT_THAT(CreateError(dense + kLoss, {0}, sparse),
              StartsWith("model.layer[0] 'd': its input is the data's"));
  EXPECT_THAT(CreateError("layer { name: 'e' embedding_bag { table: 't' } }" +
                              dense + kLoss,
                          {0}, sparse),
              StartsWith("model.layer[1] 'd': input is [batch, 1, 2], dense "
                         "takes [batch, in]; put a flatten before it"));
  EXPECT_THAT(CreateError("layer { name: 'e' embedding_bag { table: 't' } }" +
                              std::string(kLoss),
                          {3}, sparse),
              HasSubstr("input is [batch, 1, 2], this loss takes"));
}

}  // namespace
}  // namespace weir
