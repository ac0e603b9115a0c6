// Device memory that grows and stays, and CUDA's errors as Status.
#ifndef WORKER_COMPUTE_CUDA_DEVICE_MEMORY_H_
#define WORKER_COMPUTE_CUDA_DEVICE_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir::cuda {

// OK, or INTERNAL "CUDA <what>: <name>: <text>".
absl::Status ToStatus(cudaError_t error, const char* what);

// `bytes` of memory of the current device, for FreeDevice. Thread-safe.
// Errors, which name the bytes asked for, held by this process and free:
//   OUT_OF_RANGE        the device has less than this process wants of it.
//   RESOURCE_EXHAUSTED  others hold what is missing.
absl::StatusOr<void*> AllocateDevice(int64_t bytes);

// Waits for what still uses it; null is no error.
cudaError_t FreeDevice(void* memory);

// Scratch that one operation leaves to the next: grows to the largest request.
// Threads: compatible; operations that use it are on one stream.
class DeviceScratch {
 public:
  DeviceScratch() = default;
  ~DeviceScratch();
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  // Returns `bytes` or more, aligned to 256; what was there is lost when it
  // grows, which waits for the device. Errors: those of AllocateDevice.
  absl::StatusOr<void*> Reserve(int64_t bytes);
  int64_t bytes() const { return bytes_; }

 private:
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_DEVICE_MEMORY_H_
