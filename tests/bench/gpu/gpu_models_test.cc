// The models of the GPU's bench are what their comments say; on the CPU.
#include "bench/gpu/gpu_models.h"

#include <cstdint>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "worker/compute/factory.h"
#include "worker/model/network.h"

namespace weir {
namespace {

BackendOptions OnTheCpu() {
  BackendOptions options;
  options.device = "cpu";
  return options;
}

int64_t ParameterCount(const GpuModel& model) {
  const auto backend = CreateBackend(OnTheCpu());
  EXPECT_TRUE(backend.ok()) << backend.status();
  const auto network =
      Network::Create(model.spec, model.sample_shape, backend->get(), {});
  EXPECT_TRUE(network.ok()) << network.status();
  int64_t count = 0;
  for (const VariableSpec& variable : (*network)->variables()) {
    int64_t elements = 1;
    for (const int64_t size : variable.shape) {
      elements *= size;
    }
    count += elements;
  }
  return count;
}

TEST(GpuModelsTest, EveryModelHasTheSizeThatIsMeasured) {
  const std::map<std::string, int64_t> want = {
      // 784 * 4096 + 4096, 4096 * 4096 + 4096, 4096 * 10 + 10.
      {"mlp", 20'037'642},
      // examples/mnist_convnet.textproto: 9 * 32 + 32, 9 * 32 * 64 + 64,
      // 7 * 7 * 64 * 128 + 128, 128 * 10 + 10.
      {"convnet", 421'642},
      // torchvision's AlexNet has as many.
      {"alexnet", 61'100'840}};
  EXPECT_EQ(GpuModelNames().size(), want.size());
  for (const std::string& name : GpuModelNames()) {
    const auto model = MakeGpuModel(name);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->name, name);
    EXPECT_GT(model->batch, 0);
    ASSERT_TRUE(want.contains(name)) << name;
    EXPECT_EQ(ParameterCount(*model), want.at(name)) << name;
  }
}

TEST(GpuModelsTest, AnUnknownModelIsNotFound) {
  EXPECT_EQ(MakeGpuModel("resnet").status().code(),
            absl::StatusCode::kNotFound);
}

TEST(GpuModelsTest, APrecisionIsTheSameInTheApiAndInAJob) {
  EXPECT_EQ(PrecisionOf("fp32"), Precision::kFp32);
  EXPECT_EQ(PrecisionOf("tf32"), Precision::kTf32);
  EXPECT_EQ(PrecisionOf("bf16"), Precision::kBf16);
  EXPECT_EQ(JobPrecisionOf("fp32"), Compute::FP32);
  EXPECT_EQ(JobPrecisionOf("tf32"), Compute::TF32);
  EXPECT_EQ(JobPrecisionOf("bf16"), Compute::BF16);
}

TEST(GpuModelsTest, AStepperSteps) {
  GpuModel model = *MakeGpuModel("convnet");
  model.batch = 2;
  const auto stepper =
      GpuStepper::Create(model, OnTheCpu(), /*transfers=*/false);
  ASSERT_TRUE(stepper.ok()) << stepper.status();
  EXPECT_TRUE((*stepper)->Step().ok());
  EXPECT_TRUE((*stepper)->Step().ok());
}

}  // namespace
}  // namespace weir
