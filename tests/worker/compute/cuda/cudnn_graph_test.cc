// Graphs of a fake cuDNN on the emulator: what engines say, plans, refusals.
// cudnn_convolution_test has what they compute.
#include "worker/compute/cuda/cudnn_graph.h"

#include <algorithm>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/compute/cuda/emulator/fake_cudnn.h"
#include "weir_cuda_emulator.h"

namespace weir::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using weir_emulator::ConfigureCudnn;
using weir_emulator::CountCudnn;
using weir_emulator::FakeCudnn;

constexpr Conv2dShape kShape{1, 1, 3, 3, 1, 3, 1, 0};

class CudnnGraphTest : public testing::Test {
 protected:
  CudnnGraphTest() {
    weir_emulator::Configure({});
    EXPECT_EQ(FakeCudnn().create(&context_), kCudnnSuccess);
  }
  ~CudnnGraphTest() override {
    FakeCudnn().destroy(context_);
    EXPECT_EQ(CountCudnn().open, 0);
  }
  absl::StatusOr<std::shared_ptr<CudnnGraph>> Graph(
      const CudnnProblem& problem) {
    return CudnnGraph::Create(FakeCudnn(), context_, problem);
  }
  CudnnContext* context_ = nullptr;
};

TEST_F(CudnnGraphTest, NamesEnginesAndReadsTheirNotes) {
  ConfigureCudnn({{.index = 4, .notes = {kCudnnTensorCore}},
                  {.index = 5, .notes = {kCudnnNondeterministic, 3}},
                  {.index = 6, .notes = {kCudnnDownConverts}}},
                 {{.index = 4, .notes = {kCudnnReducedSums}}});
  std::vector<std::string> names;
  std::vector<bool> tensor_cores, reduces, deterministic;
  for (const CudnnEngine& engine : (*Graph({.shape = kShape}))->Engines()) {
    names.push_back(engine.name);
    tensor_cores.push_back(engine.tensor_cores);
    reduces.push_back(engine.reduces);
    deterministic.push_back(engine.deterministic);
  }
  EXPECT_THAT(names,
              ElementsAre("engine 4, advice 3.0", "engine 5, advice 3.1",
                          "engine 6, advice 3.2", "engine 4, advice 2.0"));
  EXPECT_THAT(tensor_cores, ElementsAre(true, false, false, false));
  EXPECT_THAT(reduces, ElementsAre(false, false, true, true));
  EXPECT_THAT(deterministic, ElementsAre(true, false, true, true));
}

TEST_F(CudnnGraphTest, KnowsWhichEnginesTransform) {
  using Kind = CudnnProblem::Kind;
  ConfigureCudnn({{.index = 3}, {.index = 17}, {.index = 12}, {.index = 1}});
  const auto transforms = [&](Kind kind) {
    std::vector<bool> answers;
    const auto graph = Graph({.kind = kind, .shape = kShape}).value();
    for (const CudnnEngine& engine : graph->Engines()) {
      answers.push_back(engine.transforms);
    }
    return answers;
  };
  EXPECT_THAT(transforms(Kind::kForward),
              ElementsAre(true, false, true, false));
  EXPECT_THAT(transforms(Kind::kBackwardKernel),
              ElementsAre(false, true, false, false));
  EXPECT_THAT(transforms(Kind::kBackwardData),
              ElementsAre(false, false, false, false));
}

TEST_F(CudnnGraphTest, APlanTakesOtherTensorsEachTime) {
  ConfigureCudnn({{.index = 1}});
  const auto graph = Graph({.shape = kShape, .bias = true}).value();
  const auto plan = graph->MakePlan(std::move(graph->Engines()[0])).value();
  EXPECT_EQ(plan->workspace_bytes(), 0);
  float* memory = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), 4096), cudaSuccess);
  std::fill_n(memory, 1024, 1.0f);  // the emulator's device is the host
  float* const x = memory;
  float* const kernel = memory + 64;
  float* const bias = memory + 128;
  kernel[0] = 3.0f;
  bias[0] = 0.5f;
  for (const int place : {256, 512, 256}) {
    float* const y = memory + place;
    y[0] = 0.0f;
    EXPECT_TRUE(plan->Run(context_, {x, kernel, y, bias}, nullptr).ok());
    cudaDeviceSynchronize();
    EXPECT_EQ(y[0], 8.0f + 3.0f + 0.5f);
  }
  EXPECT_EQ(CountCudnn().runs, 3);
  cudaFree(memory);
}

TEST_F(CudnnGraphTest, SaysWhatItRefuses) {
  ConfigureCudnn({{.index = 1, .plans = false}});
  Conv2dShape large = kShape;
  large.batch = int64_t{1} << 31;
  EXPECT_EQ(Graph({.shape = large}).status().code(),
            absl::StatusCode::kInvalidArgument);
  Conv2dShape empty = kShape;
  empty.channels = 0;
  EXPECT_THAT(std::string(Graph({.shape = empty}).status().message()),
              HasSubstr("tensor: CUDNN_STATUS_BAD_PARAM"));
  const auto graph = Graph({.shape = kShape}).value();
  EXPECT_THAT(
      std::string(
          graph->MakePlan(std::move(graph->Engines()[0])).status().message()),
      HasSubstr("plan: CUDNN_STATUS_NOT_SUPPORTED"));
}

}  // namespace
}  // namespace weir::cuda
