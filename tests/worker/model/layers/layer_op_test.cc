#include "worker/model/layers/layer_op.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LayerOpTest, ATensorHasTheProductOfItsDimsInElements) {
  EXPECT_EQ((TensorInfo{.dims = {3, 4, 5}}.elements()), 60);
  EXPECT_EQ((TensorInfo{.dims = {7}}.elements()), 7);
  EXPECT_EQ((TensorInfo{.dims = {0}}.elements()), 0);
}

TEST(LayerOpTest, OnlyThreeDimsAreAnImage) {
  EXPECT_TRUE((TensorInfo{.dims = {3, 32, 32}}.is_image()));
  EXPECT_FALSE((TensorInfo{.dims = {32, 32}}.is_image()));
  EXPECT_FALSE((TensorInfo{.dims = {1, 3, 32, 32}}.is_image()));
}

TEST(LayerOpTest, AShapeIsShownWithItsBatch) {
  EXPECT_EQ((TensorInfo{.dims = {3, 32, 16}}.ToString()), "[batch, 3, 32, 16]");
}

TEST(LayerOpTest, ADimensionBelowOneIsRefused) {
  EXPECT_TRUE(CheckSize("kernel", {1, 1}).ok());
  for (const int64_t bad : {int64_t{0}, int64_t{-4}}) {
    const absl::Status status = CheckSize("kernel", {3, bad});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("kernel has a dimension of"));
  }
}

// 2^63 and more do not fit int64; the product must not wrap to a small number.
TEST(LayerOpTest, AProductOverTheBoundIsRefusedHoweverLarge) {
  EXPECT_TRUE(CheckSize("kernel", {Layout::kMaxFlatElements}).ok());
  const int64_t large = int64_t{1} << 32;
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{Layout::kMaxFlatElements, 2},
        std::vector<int64_t>{large, large},
        std::vector<int64_t>{large, large, large, large}}) {
    const absl::Status status = CheckSize("kernel", dims);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("elements; at most"));
  }
}

TEST(LayerOpTest, ATrainedVariableKeepsWhatItIsGiven) {
  const VariableSpec variable = TrainedVariable(
      "kernel", {2, 3}, {.kind = InitKind::kUniform, .scale = 0.5f});
  EXPECT_EQ(variable.name, "kernel");
  EXPECT_THAT(variable.shape, ElementsAre(2, 3));
  EXPECT_EQ(variable.kind, VariableKind::kTrained);
  EXPECT_EQ(variable.init.kind, InitKind::kUniform);
  EXPECT_EQ(variable.init.scale, 0.5f);
  EXPECT_EQ(variable.group, 0);
}

}  // namespace
}  // namespace weir
