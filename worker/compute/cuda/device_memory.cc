#include "worker/compute/cuda/device_memory.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace weir::cuda {
namespace {

struct Block {
  int device;
  int64_t bytes;
};

// What this process holds, by address.
struct Blocks {
  Mutex mutex;
  std::map<void*, Block> of ABSL_GUARDED_BY(mutex);
};

Blocks& AllBlocks() {
  static auto* const blocks = new Blocks();
  return *blocks;
}

int64_t BytesHeldOn(int device) {
  Blocks& blocks = AllBlocks();
  MutexLock lock(&blocks.mutex);
  int64_t bytes = 0;
  for (const auto& [address, block] : blocks.of) {
    bytes += block.device == device ? block.bytes : 0;
  }
  return bytes;
}

// What others hold on a device may come free; what it lacks in all does not.
absl::Status OutOfMemory(int device, int64_t bytes) {
  size_t free = 0;
  size_t total = 0;
  cudaMemGetInfo(&free, &total);
  const int64_t held = BytesHeldOn(device);
  const auto code = bytes > static_cast<int64_t>(total) - held
                        ? absl::StatusCode::kOutOfRange
                        : absl::StatusCode::kResourceExhausted;
  return absl::Status(
      code,
      absl::StrCat("out of memory on cuda:", device, ": ", bytes,
                   " bytes asked, ", held, " held, ", free, " of ", total,
                   " free; a smaller train.batch_size, or fewer workers on "
                   "this device, need less"));
}

}  // namespace

absl::Status ToStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("CUDA ", what, ": ",
                                          cudaGetErrorName(error), ": ",
                                          cudaGetErrorString(error)));
}

absl::StatusOr<void*> AllocateDevice(int64_t bytes) {
  bytes = std::max<int64_t>(bytes, 1);
  int device = 0;
  WEIR_RETURN_IF_ERROR(ToStatus(cudaGetDevice(&device), "cudaGetDevice"));
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // this one does not stay
    return OutOfMemory(device, bytes);
  }
  WEIR_RETURN_IF_ERROR(ToStatus(error, "cudaMalloc"));
  Blocks& blocks = AllBlocks();
  MutexLock lock(&blocks.mutex);
  blocks.of[memory] = {.device = device, .bytes = bytes};
  return memory;
}

cudaError_t FreeDevice(void* memory) {
  {
    Blocks& blocks = AllBlocks();
    MutexLock lock(&blocks.mutex);
    blocks.of.erase(memory);
  }
  return cudaFree(memory);
}

DeviceScratch::~DeviceScratch() { FreeDevice(memory_); }

absl::StatusOr<void*> DeviceScratch::Reserve(int64_t bytes) {
  if (bytes > bytes_) {
    // Waits for what still uses it.
    WEIR_RETURN_IF_ERROR(ToStatus(FreeDevice(memory_), "cudaFree"));
    memory_ = nullptr;
    bytes_ = 0;
    WEIR_ASSIGN_OR_RETURN(memory_, AllocateDevice(bytes));
    bytes_ = bytes;
  }
  return memory_;
}

}  // namespace weir::cuda
