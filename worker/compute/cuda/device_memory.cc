#include "worker/compute/cuda/device_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace weir::cuda {

absl::Status ToStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("CUDA ", what, ": ",
                                          cudaGetErrorName(error), ": ",
                                          cudaGetErrorString(error)));
}

absl::StatusOr<void*> AllocateDevice(int64_t bytes) {
  void* memory = nullptr;
  const cudaError_t error =
      cudaMalloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // this one does not stay
    int device = 0;
    size_t free = 0;
    size_t total = 0;
    cudaGetDevice(&device);
    cudaMemGetInfo(&free, &total);
    return absl::ResourceExhaustedError(absl::StrCat(
        "out of memory on cuda:", device, ": ", bytes, " bytes asked, ", free,
        " of ", total,
        " free; a smaller train.batch_size, or fewer workers on this device, "
        "need less"));
  }
  WEIR_RETURN_IF_ERROR(ToStatus(error, "cudaMalloc"));
  return memory;
}

DeviceScratch::~DeviceScratch() { cudaFree(memory_); }

absl::StatusOr<void*> DeviceScratch::Reserve(int64_t bytes) {
  if (bytes > bytes_) {
    // Waits for what still uses it.
    WEIR_RETURN_IF_ERROR(ToStatus(cudaFree(memory_), "cudaFree"));
    memory_ = nullptr;
    bytes_ = 0;
    WEIR_ASSIGN_OR_RETURN(memory_, AllocateDevice(bytes));
    bytes_ = bytes;
  }
  return memory_;
}

}  // namespace weir::cuda
