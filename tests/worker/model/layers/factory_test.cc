#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

Layer Parse(const std::string& text) {
  Layer layer;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &layer))
      << text;
  return layer;
}

const TensorInfo kVector = {.dims = {4}};
const TensorInfo kImage = {.dims = {2, 6, 6}, .format = Format::kChannelsLast};

std::string ErrorOf(const std::string& text,
                    const std::vector<TensorInfo>& inputs) {
  const Layer spec = Parse(text);
  const auto made = MakeLayer({spec, inputs, {}});
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(made.status().message());
}

std::string OutputOf(const std::string& text,
                     const std::vector<TensorInfo>& inputs) {
  const Layer spec = Parse(text);
  const auto made = MakeLayer({spec, inputs, {}});
  EXPECT_TRUE(made.ok()) << text << ": " << made.status();
  return made.ok() ? (*made)->traits().output.ToString() : "";
}

TEST(FactoryTest, EveryKindMakesItsLayer) {
  const std::vector<TensorInfo> one = {kVector};
  const std::vector<TensorInfo> two = {kVector, kVector};
  const std::vector<TensorInfo> image = {kImage};
  EXPECT_EQ(OutputOf("dense { units: 3 }", one), "[batch, 3]");
  EXPECT_EQ(OutputOf("conv2d { filters: 5 kernel_size: 3 }", image),
            "[batch, 5, 4, 4]");
  EXPECT_EQ(OutputOf("max_pool { size: 2 }", image), "[batch, 2, 3, 3]");
  EXPECT_EQ(OutputOf("average_pool { size: 3 }", image), "[batch, 2, 2, 2]");
  for (const char* kind : {"relu {}", "sigmoid {}", "tanh {}", "dropout {}",
                           "layer_norm {}", "batch_norm {}", "cross {}"}) {
    EXPECT_EQ(OutputOf(kind, one), "[batch, 4]") << kind;
  }
  EXPECT_EQ(OutputOf("flatten {}", {{.dims = {2, 3, 4}}}), "[batch, 24]");
  EXPECT_EQ(OutputOf("add {}", two), "[batch, 4]");
  EXPECT_EQ(OutputOf("concat {}", two), "[batch, 8]");
  EXPECT_EQ(OutputOf("factorization_machine {}", two), "[batch, 1]");
  EXPECT_EQ(OutputOf("dot_interaction {}", two), "[batch, 1]");
}

TEST(FactoryTest, AnEmbeddingBagReadsATableAndNoInput) {
  SparseSpec sparse;
  sparse.tables.emplace_back().set_name("t");
  sparse.tables.back().set_dim(3);
  sparse.features = {"A", "B"};
  const Layer spec = Parse("embedding_bag { table: 't' }");
  const auto made = MakeLayer({spec, {}, sparse});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)->traits().output.ToString(), "[batch, 2, 3]");
  EXPECT_THAT(MakeLayer({spec, {kVector}, sparse}).status().message(),
              HasSubstr("has 1 inputs; it takes none"));
}

TEST(FactoryTest, TheNumberOfInputsIsChecked) {
  EXPECT_THAT(ErrorOf("dense { units: 3 }", {}),
              HasSubstr("has 0 inputs; it takes one"));
  EXPECT_THAT(ErrorOf("relu {}", {kVector, kVector}),
              HasSubstr("has 2 inputs; it takes one"));
  EXPECT_THAT(ErrorOf("add {}", {kVector}),
              HasSubstr("has 1 inputs; it takes two or more"));
  EXPECT_THAT(ErrorOf("concat {}", {kVector}),
              HasSubstr("has 1 inputs; it takes two or more"));
  EXPECT_THAT(ErrorOf("dot_interaction {}", {}),
              HasSubstr("has 0 inputs; it takes one or more"));
}

TEST(FactoryTest, ALayerWithoutAKindIsRefused) {
  EXPECT_THAT(ErrorOf("name: 'a'", {kVector}), HasSubstr("no kind is set"));
}

// The kinds that take any format must be those that work element by element.
TEST(FactoryTest, SaysWhichFormatAKindTakesImagesIn) {
  for (const char* kind :
       {"conv2d {}", "max_pool {}", "average_pool {}", "batch_norm {}"}) {
    EXPECT_EQ(WantedFormat(Parse(kind)), Format::kChannelsLast) << kind;
  }
  for (const char* kind :
       {"relu {}", "sigmoid {}", "tanh {}", "dropout {}", "add {}"}) {
    EXPECT_EQ(WantedFormat(Parse(kind)), std::nullopt) << kind;
  }
  for (const char* kind :
       {"dense {}", "flatten {}", "layer_norm {}", "concat {}", "cross {}"}) {
    EXPECT_EQ(WantedFormat(Parse(kind)), Format::kPlain) << kind;
  }
}

}  // namespace
}  // namespace weir
