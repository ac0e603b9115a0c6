#include "worker/compute/cuda/device_memory.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace weir::cuda {
namespace {

struct Block {
  int device;
  int64_t bytes;
};

// The blocks that this process holds, by address. CUDA tells only what is free
// on a device, which does not say whether we or others hold the rest.
struct Blocks {
  Mutex mutex;
  std::map<void*, Block> of ABSL_GUARDED_BY(mutex);
};

Blocks& AllBlocks() {
  // Never destroyed: backends in static objects may free memory at exit.
  static auto* const blocks = new Blocks();
  return *blocks;
}

int64_t BytesHeldOn(int device) {
  Blocks& blocks = AllBlocks();
  MutexLock lock(&blocks.mutex);
  int64_t bytes = 0;
  for (const auto& [address, block] : blocks.of) {
    if (block.device == device) {
      bytes += block.bytes;
    }
  }
  return bytes;
}

// The code tells the caller whether to wait: what other processes hold may come
// free, but a device never gets more memory than it has in all.
absl::Status OutOfMemory(int device, int64_t bytes) {
  size_t free = 0;
  size_t total = 0;
  cudaMemGetInfo(&free, &total);
  const int64_t held = BytesHeldOn(device);
  auto code = absl::StatusCode::kResourceExhausted;
  if (bytes > static_cast<int64_t>(total) - held) {
    code = absl::StatusCode::kOutOfRange;
  }
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
  // cudaMalloc gives null for no bytes; a caller wants an address to release.
  bytes = std::max<int64_t>(bytes, 1);
  int device = 0;
  WEIR_RETURN_IF_ERROR(ToStatus(cudaGetDevice(&device), "cudaGetDevice"));
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    // A full device still works. The error must not be taken for that of the
    // next kernel.
    cudaGetLastError();
    return OutOfMemory(device, bytes);
  }
  WEIR_RETURN_IF_ERROR(ToStatus(error, "cudaMalloc"));
  Blocks& blocks = AllBlocks();
  MutexLock lock(&blocks.mutex);
  blocks.of[memory] = {.device = device, .bytes = bytes};
  return memory;
}

cudaError_t FreeDevice(void* memory) {
  // Forgets the block first: once it is free, another thread may get the same
  // address and enter it.
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
    // Frees before it allocates, so that both need not fit. cudaFree waits for
    // the operations that still use the memory.
    WEIR_RETURN_IF_ERROR(ToStatus(FreeDevice(memory_), "cudaFree"));
    memory_ = nullptr;
    const int64_t before = std::exchange(bytes_, 0);
    absl::StatusOr<void*> memory = AllocateDevice(bytes);
    const absl::Status status = memory.status();
    if (!status.ok() && before > 0) {
      // Operations that had enough may come next in a capture, in which nothing
      // can be allocated.
      bytes = before;
      memory = AllocateDevice(bytes);
    }
    if (memory.ok()) {
      memory_ = *memory;
      bytes_ = bytes;
    }
    WEIR_RETURN_IF_ERROR(status);
  }
  return memory_;
}

absl::StatusOr<float*> DeviceScratch::ReserveFloats(int64_t count) {
  WEIR_ASSIGN_OR_RETURN(void* const memory,
                        Reserve(count * static_cast<int64_t>(sizeof(float))));
  return static_cast<float*>(memory);
}

PinnedWords::~PinnedWords() {
  cudaFreeHost(host_);
  FreeDevice(device_);
}

absl::Status PinnedWords::Reserve(size_t count) {
  if (count <= capacity_) {
    return absl::OkStatus();
  }
  // The device first: freeing its memory waits for copies from or to the
  // host's.
  FreeDevice(device_);
  cudaFreeHost(host_);
  host_ = nullptr;
  device_ = nullptr;
  capacity_ = 0;
  void* host = nullptr;
  WEIR_RETURN_IF_ERROR(ToStatus(cudaMallocHost(&host, count * sizeof(uint64_t)),
                                "cudaMallocHost"));
  host_ = static_cast<uint64_t*>(host);
  WEIR_ASSIGN_OR_RETURN(
      void* const device,
      AllocateDevice(static_cast<int64_t>(count * sizeof(uint64_t))));
  device_ = static_cast<uint64_t*>(device);
  capacity_ = count;
  return absl::OkStatus();
}

}  // namespace weir::cuda
