// Device memory that grows and stays, pinned memory, and CUDA's errors as
// Status.
//
// Place: all of worker/compute/cuda allocates through this file, so that a
// device that is full gives one message, with what this process holds of it.
#ifndef WORKER_COMPUTE_CUDA_DEVICE_MEMORY_H_
#define WORKER_COMPUTE_CUDA_DEVICE_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"

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
  // device, and what was there is lost. Errors: those of AllocateDevice; it has
  // the size of before then, where that is still free.
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

// Uploads that threads make by themselves, beside the backend's queue: those
// that receive values from a ps send them from where the message has them. Each
// goes through a lane, which is a stream and a little pinned memory: a device
// reads other memory through the driver's, for one thread at a time, and so
// little stays in the processor's cache.
// Threads: safe. There are as many lanes as there were uploads at one time.
class UploadLanes {
 public:
  // A block of a layout has that many bytes, unless its job says otherwise.
  static constexpr size_t kLaneBytes = size_t{1} << 20;

  explicit UploadLanes(int device) : device_(device) {}
  // REQUIRES: no upload is under way.
  ~UploadLanes();
  UploadLanes(const UploadLanes&) = delete;
  UploadLanes& operator=(const UploadLanes&) = delete;

  // Returns when the device has `pieces`, one behind the other, at `to`.
  // Errors: INTERNAL  CUDA refused; names the call.
  absl::Status Upload(void* to, std::span<const std::span<const char>> pieces);

 private:
  struct Lane {
    cudaStream_t stream = nullptr;
    char* pinned = nullptr;
  };

  absl::StatusOr<Lane> Take();
  static absl::Status UploadOn(const Lane& lane, void* to,
                               std::span<const std::span<const char>> pieces);

  const int device_;
  Mutex mutex_;
  std::vector<Lane> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_DEVICE_MEMORY_H_
