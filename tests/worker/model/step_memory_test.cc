#include "worker/model/step_memory.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"
#include "worker/compute/factory.h"

namespace weir {
namespace {

// "a" is read three times, so two of its gradients are written aside. "drop"
// works in place where it may. No layer has a workspace but "norm".
constexpr char kModel[] = R"(
layer { name: "a" dense { units: 3 } }
layer { name: "norm" input: "a" layer_norm {} }
layer { name: "sum" input: "a" input: "norm" input: "a" add {} }
layer { name: "drop" dropout { rate: 0.5 } }
layer { name: "y" dense { units: 2 } }
loss { softmax_cross_entropy {} })";

class StepMemoryTest : public testing::Test {
 protected:
  StepMemoryTest()
      : graph_(BuildGraph(ParseModel(kModel), {5}).value()),
        backend_(CreateBackend({}).value()),
        memory_(graph_, backend_.get()) {}

  // The parts of memory that differ, as (begin, elements).
  std::vector<std::pair<float*, int64_t>> Parts(int64_t rows) const {
    std::vector<std::pair<float*, int64_t>> parts = {
        {memory_.row_loss(), rows}, {memory_.row_correct(), rows}};
    for (size_t t = 1; t < graph_.tensors.size(); ++t) {
      const GraphTensor& tensor = graph_.tensors[t];
      const int64_t elements = rows * tensor.info.elements();
      if (tensor.value_root == static_cast<int>(t)) {
        parts.emplace_back(memory_.value(static_cast<int>(t)), elements);
      }
      if (tensor.needs_gradient &&
          tensor.gradient_root == static_cast<int>(t)) {
        parts.emplace_back(memory_.gradient(static_cast<int>(t)), elements);
      }
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const GraphNode& node = graph_.nodes[n];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (memory_.edge(n, i) != nullptr) {
          const GraphTensor& input = graph_.tensors[node.inputs[i]];
          parts.emplace_back(memory_.edge(n, i), rows * input.info.elements());
        }
      }
      const auto& specs = node.op->traits().workspaces;
      for (size_t i = 0; i < specs.size(); ++i) {
        parts.emplace_back(memory_.workspace(n, i),
                           specs[i].fixed + rows * specs[i].per_row);
      }
    }
    return parts;
  }

  // Inputs with an edge, over all nodes that read the tensor.
  int EdgesOf(int tensor) const {
    int edges = 0;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const std::vector<int>& inputs = graph_.nodes[n].inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        edges += static_cast<int>(inputs[i] == tensor &&
                                  memory_.edge(n, i) != nullptr);
      }
    }
    return edges;
  }

  const Graph graph_;
  const std::unique_ptr<Backend> backend_;
  StepMemory memory_;
};

// I1.
TEST_F(StepMemoryTest, HoldsTheLargestStepSoFar) {
  EXPECT_FALSE(memory_.Holds(1, false));
  ASSERT_TRUE(memory_.Grow(8, false).ok());
  EXPECT_TRUE(memory_.Holds(8, false));
  EXPECT_FALSE(memory_.Holds(9, false));
  EXPECT_FALSE(memory_.Holds(1, true));
  ASSERT_TRUE(memory_.Grow(1, true).ok());
  EXPECT_TRUE(memory_.Holds(8, true));  // the rows of before as well
  EXPECT_EQ(memory_.rows(), 8);
  ASSERT_TRUE(memory_.Grow(9, false).ok());
  EXPECT_TRUE(memory_.Holds(9, true));  // still for training
}

// I2.
TEST_F(StepMemoryTest, PartsAreAlignedAndDoNotOverlap) {
  constexpr int64_t kRows = 7;
  ASSERT_TRUE(memory_.Grow(kRows, true).ok());
  auto parts = Parts(kRows);
  ASSERT_GT(parts.size(), 10u);
  std::sort(parts.begin(), parts.end());
  for (size_t i = 0; i < parts.size(); ++i) {
    ASSERT_NE(parts[i].first, nullptr);
    EXPECT_EQ((parts[i].first - parts[0].first) % StepMemory::kAlignment, 0);
    if (i > 0) {
      EXPECT_GE(parts[i].first - parts[i - 1].first, parts[i - 1].second) << i;
    }
  }
}

// The size that is asked for ahead is that of what Grow then allocates.
TEST_F(StepMemoryTest, KnowsItsBytesBeforeItAllocates) {
  constexpr int64_t kRows = 7;
  const int64_t bytes = memory_.BytesFor(kRows, true);
  EXPECT_GT(bytes, memory_.BytesFor(kRows, false));
  EXPECT_EQ(memory_.rows(), 0);
  ASSERT_TRUE(memory_.Grow(kRows, true).ok());
  auto parts = Parts(kRows);
  std::sort(parts.begin(), parts.end());
  const int64_t used =
      parts.back().first + parts.back().second - parts.front().first;
  EXPECT_LE(used * 4, bytes);
  EXPECT_GT(used * 4, bytes - StepMemory::kAlignment * 4);
}

// Products that do not fit 64 bits: with 2^24 rows a tensor has 2^64 floats,
// and with 2^23 rows 2^63.
TEST_F(StepMemoryTest, RefusesAStepWhoseSizeNobodyCanTell) {
  const Graph wide = BuildGraph(ParseModel(R"(layer { name: "a" layer_norm {} }
                               layer { name: "b" input: "a" relu {} }
                               layer { name: "y" input: "a" input: "b" add {} }
                               loss { softmax_cross_entropy {} })"),
                                {int64_t{1} << 40})
                         .value();
  StepMemory memory(wide, backend_.get());
  for (const int64_t rows : {1 << 23, 1 << 24}) {
    EXPECT_EQ(memory.BytesFor(rows, true), StepMemory::kElementsMax * 4);
    EXPECT_EQ(memory.Grow(rows, true).code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_FALSE(memory.Holds(1, false));
  }
}

// I3: three inputs read "a", of which one writes its gradient directly.
TEST_F(StepMemoryTest, EveryConsumerOfATensorButOneWritesAside) {
  ASSERT_TRUE(memory_.Grow(4, true).ok());
  const int a = graph_.nodes[0].output;
  ASSERT_EQ(graph_.tensors[a].consumers, 3);
  EXPECT_EQ(EdgesOf(a), 2);
  for (size_t t = 1; t < graph_.tensors.size(); ++t) {
    if (graph_.tensors[t].consumers == 1) {
      EXPECT_EQ(EdgesOf(static_cast<int>(t)), 0) << t;
    }
  }
}

TEST_F(StepMemoryTest, TensorsOfOneRootHaveOneAddress) {
  ASSERT_TRUE(memory_.Grow(4, true).ok());
  const int sum = graph_.nodes[2].output;
  const int drop = graph_.nodes[3].output;
  ASSERT_EQ(graph_.tensors[drop].value_root, sum);
  EXPECT_EQ(memory_.value(drop), memory_.value(sum));
  // The CPU reads features and labels where the caller has them.
  EXPECT_EQ(memory_.value(0), nullptr);
  EXPECT_EQ(memory_.labels(), nullptr);
}

}  // namespace
}  // namespace weir
