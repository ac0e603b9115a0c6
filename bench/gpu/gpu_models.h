// The models on which a GPU is measured, and one of them set up to step.
//
// Place: below gpu_bench's modes. torch_gpu.py has the same models in PyTorch.
//
// Threads: compatible.
#ifndef BENCH_GPU_GPU_MODELS_H_
#define BENCH_GPU_GPU_MODELS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/layout.h"
#include "proto/job_spec.pb.h"
#include "worker/compute/backend.h"
#include "worker/compute/factory.h"
#include "worker/model/network.h"

namespace weir {

struct GpuModel {
  std::string name;
  Model spec;
  std::vector<int64_t> sample_shape;  // [channels, height, width]
  int64_t batch = 0;
  int64_t classes = 0;
};

// Returns "mlp", "convnet" and "alexnet".
const std::vector<std::string>& GpuModelNames();
// Errors: NOT_FOUND names a model that is not there.
absl::StatusOr<GpuModel> MakeGpuModel(const std::string& name);

// Turns "fp32", "tf32" or "bf16" into the API's value and into a job's. Any
// other name counts as "fp32".
Precision PrecisionOf(const std::string& name);
Compute::Precision JobPrecisionOf(const std::string& name);

// A network with random parameters and one random batch.
class GpuStepper {
 public:
  // Sets up `model`. NetworkOptions says what `transfers` does.
  static absl::StatusOr<std::unique_ptr<GpuStepper>> Create(
      const GpuModel& model, const BackendOptions& backend, bool transfers);

  // Makes one training step on the batch. Returns when all gradients are final.
  absl::Status Step(const StepHooks& hooks = {});

  Backend* backend() { return backend_.get(); }
  const Network& network() const { return *network_; }

 private:
  GpuStepper() = default;

  int64_t rows_ = 0;
  uint64_t seed_ = 0;
  std::vector<float> parameters_, gradients_, features_, labels_;
  std::unique_ptr<Backend> backend_;  // outlives network_, which uses it
  std::unique_ptr<Network> network_;
};

}  // namespace weir

#endif  // BENCH_GPU_GPU_MODELS_H_
