#include "worker/model/layers/vector_inputs.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/compute/factory.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TensorInfo Shape(std::vector<int64_t> dims) {
  return {.dims = std::move(dims)};
}

std::string ErrorOf(const std::vector<TensorInfo>& inputs) {
  return std::string(VectorInputs::Create(inputs).status().message());
}

TEST(VectorInputsTest, RefusesWhatIsNotTwoVectorsOfOneDim) {
  EXPECT_THAT(ErrorOf({Shape({3, 4, 4})}), HasSubstr("vectors are [batch,"));
  EXPECT_THAT(ErrorOf({Shape({2, 3}), Shape({4})}),
              HasSubstr("not [batch, 2, 3] and [batch, 4]"));
  EXPECT_THAT(ErrorOf({Shape({4})}), HasSubstr("is one vector"));
  EXPECT_THAT(ErrorOf({Shape({1, 4})}), HasSubstr("is one vector"));
  EXPECT_EQ(ErrorOf({Shape({2, 4})}), "");
  EXPECT_EQ(ErrorOf({Shape({4}), Shape({4})}), "");
}

TEST(VectorInputsTest, CountsTheVectorsOfAllInputs) {
  const auto inputs =
      VectorInputs::Create({Shape({4}), Shape({3, 4}), Shape({1, 4})});
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  const VectorsShape shape = inputs->Shape(7);
  EXPECT_EQ(shape.batch, 7);
  EXPECT_EQ(shape.vectors, 5);
  EXPECT_EQ(shape.dim, 4);
  const std::vector<WorkspaceSpec> workspaces = inputs->workspaces();
  ASSERT_EQ(workspaces.size(), 2u);
  EXPECT_EQ(workspaces[0].per_row, 20);
  EXPECT_EQ(workspaces[1].per_row, 20);
}

// Two samples of a vector {1, 2} and of two vectors {3, 4}, {5, 6}.
TEST(VectorInputsTest, JoinsSamplesAndSplitsTheirGradients) {
  const auto inputs = VectorInputs::Create({Shape({2}), Shape({2, 2})});
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  const std::unique_ptr<Backend> backend = CreateBackend({}).value();
  const std::vector<float> a = {1, 2, 10, 20};
  const std::vector<float> b = {3, 4, 5, 6, 30, 40, 50, 60};
  std::vector<float> joined(12);
  std::vector<float> gradient(12);
  std::vector<float> da(4);
  std::vector<float> db(8);
  LayerContext context;
  context.backend = backend.get();
  context.rows = 2;
  context.inputs = {a.data(), b.data()};
  context.input_gradients = {da.data(), db.data()};
  context.workspaces = {joined.data(), gradient.data()};
  inputs->Join(context);
  EXPECT_EQ(inputs->Values(context), joined.data());
  EXPECT_THAT(joined, ElementsAre(1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60));
  ASSERT_EQ(inputs->Gradient(context), gradient.data());
  for (size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = static_cast<float>(i);
  }
  inputs->Split(context);
  EXPECT_THAT(da, ElementsAre(0, 1, 6, 7));
  EXPECT_THAT(db, ElementsAre(2, 3, 4, 5, 8, 9, 10, 11));
}

TEST(VectorInputsTest, AnInputWhoseGradientNobodyReadsIsLeftOut) {
  const auto inputs = VectorInputs::Create({Shape({2}), Shape({2})});
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  const std::unique_ptr<Backend> backend = CreateBackend({}).value();
  std::vector<float> gradient = {1, 2, 3, 4};
  std::vector<float> db(2);
  LayerContext context;
  context.backend = backend.get();
  context.rows = 1;
  context.input_gradients = {nullptr, db.data()};
  context.workspaces = {nullptr, gradient.data()};
  inputs->Split(context);
  EXPECT_THAT(db, ElementsAre(3, 4));
}

TEST(VectorInputsTest, ASingleInputIsUsedWhereItIs) {
  const auto inputs = VectorInputs::Create({Shape({2, 2})});
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_TRUE(inputs->workspaces().empty());
  const std::vector<float> a = {1, 2, 3, 4};
  std::vector<float> da(4);
  LayerContext context;  // without a backend, as nothing is copied
  context.rows = 1;
  context.inputs = {a.data()};
  context.input_gradients = {da.data()};
  inputs->Join(context);
  inputs->Split(context);
  EXPECT_EQ(inputs->Values(context), a.data());
  EXPECT_EQ(inputs->Gradient(context), da.data());
  context.input_gradients = {nullptr};
  EXPECT_EQ(inputs->Gradient(context), nullptr);
}

}  // namespace
}  // namespace weir
