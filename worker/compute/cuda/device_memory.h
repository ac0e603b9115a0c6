// Device memory that grows and stays, and CUDA's errors as Status.
//
// Place: all of worker/compute/cuda allocates through this file, so that a
// device that is full gives one message, with what this process holds of it.
#ifndef WORKER_COMPUTE_CUDA_DEVICE_MEMORY_H_
#define WORKER_COMPUTE_CUDA_DEVICE_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir::cuda {

// OK, or INTERNAL "CUDA <what>: <name>: <text>".
absl::Status ToStatus(cudaError_t error, const char* what);

// Allocates `bytes` of memory of the current device, for FreeDevice.
// Thread-safe.
// Errors, which name the bytes asked for, held by this process and free:
//   OUT_OF_RANGE        the device has less than this process wants of it.
//   RESOURCE_EXHAUSTED  other processes hold what is missing.
absl::StatusOr<void*> AllocateDevice(int64_t bytes);

// Frees `memory`, which may be null, after what still uses it has run.
cudaError_t FreeDevice(void* memory);

// Scratch that one operation leaves to the next. It grows to the largest
// request and stays. Threads: compatible; all operations that use it are on one
// stream.
class DeviceScratch {
 public:
  DeviceScratch() = default;
  ~DeviceScratch();
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  // Returns `bytes` or more, aligned to 256. When it grows it waits for the
  // device, and what was there is lost. Errors: those of AllocateDevice.
  absl::StatusOr<void*> Reserve(int64_t bytes);
  absl::StatusOr<float*> ReserveFloats(int64_t count);
  int64_t bytes() const { return bytes_; }

 private:
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
};

// Words of 64 bits in pinned host memory, and as many in device memory for a
// copy of them. They grow to the largest request and stay.
// Threads: compatible.
class PinnedWords {
 public:
  PinnedWords() = default;
  ~PinnedWords();
  PinnedWords(const PinnedWords&) = delete;
  PinnedWords& operator=(const PinnedWords&) = delete;

  // Makes room for `count` words. When it grows it waits for the device, and
  // what was there is lost.
  // Errors: INTERNAL  there is no pinned memory; those of AllocateDevice.
  absl::Status Reserve(size_t count);
  uint64_t* host() const { return host_; }
  uint64_t* device() const { return device_; }
  size_t capacity() const { return capacity_; }

 private:
  uint64_t* host_ = nullptr;
  uint64_t* device_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_DEVICE_MEMORY_H_
