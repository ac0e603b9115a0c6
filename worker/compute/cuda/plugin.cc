// libweir_cuda.so: what worker/compute/plugin.h asks of a plug-in.
#include "worker/compute/plugin.h"

#include <cuda_runtime_api.h>

#include "worker/compute/cuda/cuda_backend.h"
#include "worker/compute/cuda/device_memory.h"
#include "worker/compute/cuda/engine_choices.h"
#include "worker/compute/plugin_abi.h"

namespace weir::cuda {
namespace {

absl::StatusOr<int> DeviceCount() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  // A driver without a device is no error here: the caller says what is
  // missing.
  if (error == cudaErrorNoDevice) {
    return 0;
  }
  const absl::Status status = ToStatus(error, "cudaGetDeviceCount");
  // The contract's code for a driver that does not answer.
  if (!status.ok()) {
    return absl::NotFoundError(status.message());
  }
  return count;
}

absl::StatusOr<std::unique_ptr<Backend>> Create(
    const ComputePluginOptions& options) {
  return CudaBackend::Create({.device = options.device,
                              .precision = options.precision,
                              .deterministic = options.deterministic,
                              .cudnn_library = options.cudnn_library,
                              .choices_file = DefaultEngineChoicesPath()});
}

// Two steps, since # does not expand its argument.
#define WEIR_TEXT_INNER(x) #x
#define WEIR_TEXT(x) WEIR_TEXT_INNER(x)

constexpr ComputePlugin kPlugin = {
    .abi = kComputePluginAbi,
    .description = "CUDA runtime " WEIR_TEXT(CUDART_VERSION),
    .device_count = &DeviceCount,
    .create = &Create,
};

}  // namespace
}  // namespace weir::cuda

extern "C" __attribute__((visibility("default"))) const weir::ComputePlugin*
weir_compute_plugin() {
  return &weir::cuda::kPlugin;
}
