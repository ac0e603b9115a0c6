// Measures what gpu_bench asks for in its own process, one function for each
// question. Each prints its lines and returns them as JSON.
//
// Threads: compatible.
// Errors: FAILED_PRECONDITION  the device cannot answer this question.
//         others               come from the device, the model or the files.
#ifndef BENCH_GPU_GPU_MODES_H_
#define BENCH_GPU_GPU_MODES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace weir {

struct GpuFlags {
  std::string root = ".";  // holds bench/gpu/torch_gpu.py
  std::string bin_dir = "bin";
  std::string device = "cuda";
  std::string device_plugin;
  std::vector<std::string> models;
  std::vector<std::string> precisions;
  int64_t batch = 0;  // 0: the model's
  int64_t steps = 0;  // 0: the mode's
  int channels = 0;   // of --job: --channels_per_peer; 0: the default
  bool peers = false;
  std::string python = "python3";
};

// A step of compute alone: batch, parameters and gradients stay on the device.
// With `peers` PyTorch's, too.
absl::StatusOr<nlohmann::json> MeasureSteps(const GpuFlags& flags);

// Copies between pinned host memory and the device, each way and both at once.
absl::StatusOr<nlohmann::json> MeasureCopies(const GpuFlags& flags);

// A step with its copies beside compute alone and the copies alone, and when
// each variable was sent and its gradient had come back.
absl::StatusOr<nlohmann::json> MeasureOverlap(const GpuFlags& flags);

// Device memory over many steps; an error where it grows.
absl::StatusOr<nlohmann::json> MeasureMemory(const GpuFlags& flags);

}  // namespace weir

#endif  // BENCH_GPU_GPU_MODES_H_
