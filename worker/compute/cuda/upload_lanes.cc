// Uploads through lanes of their own.
#include <algorithm>
#include <cstring>
#include <span>

#include "common/base/status.h"
#include "worker/compute/cuda/device_memory.h"

namespace weir::cuda {

UploadLanes::~UploadLanes() {
  MutexLock lock(&mutex_);
  for (const Lane& lane : free_) {
    cudaStreamDestroy(lane.stream);
    cudaFreeHost(lane.pinned);
  }
}

absl::Status UploadLanes::Upload(
    void* to, std::span<const std::span<const char>> pieces) {
  // The calling thread may be new to CUDA.
  WEIR_RETURN_IF_ERROR(ToStatus(cudaSetDevice(device_), "cudaSetDevice"));
  WEIR_ASSIGN_OR_RETURN(const Lane lane, Take());
  const absl::Status status = UploadOn(lane, to, pieces);
  MutexLock lock(&mutex_);
  free_.push_back(lane);
  return status;
}

absl::StatusOr<UploadLanes::Lane> UploadLanes::Take() {
  {
    MutexLock lock(&mutex_);
    if (!free_.empty()) {
      const Lane lane = free_.back();
      free_.pop_back();
      return lane;
    }
  }
  Lane lane;
  void* pinned = nullptr;
  WEIR_RETURN_IF_ERROR(
      ToStatus(cudaHostAlloc(&pinned, kLaneBytes, cudaHostAllocPortable),
               "cudaHostAlloc"));
  lane.pinned = static_cast<char*>(pinned);
  absl::Status status =
      ToStatus(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking),
               "cudaStreamCreate");
  if (!status.ok()) {
    cudaFreeHost(pinned);
    return status;
  }
  return lane;
}

absl::Status UploadLanes::UploadOn(
    const Lane& lane, void* to, std::span<const std::span<const char>> pieces) {
  auto* next = static_cast<char*>(to);
  size_t filled = 0;
  // Returns when the pinned memory may be filled anew.
  const auto flush = [&]() -> absl::Status {
    WEIR_RETURN_IF_ERROR(
        ToStatus(cudaMemcpyAsync(next, lane.pinned, filled,
                                 cudaMemcpyHostToDevice, lane.stream),
                 "copy of values to the device"));
    next += filled;
    filled = 0;
    return ToStatus(cudaStreamSynchronize(lane.stream),
                    "copy of values to the device");
  };
  for (std::span<const char> piece : pieces) {
    while (!piece.empty()) {
      const size_t count = std::min(piece.size(), kLaneBytes - filled);
      std::memcpy(lane.pinned + filled, piece.data(), count);
      filled += count;
      piece = piece.subspan(count);
      if (filled == kLaneBytes) {
        WEIR_RETURN_IF_ERROR(flush());
      }
    }
  }
  return filled > 0 ? flush() : absl::OkStatus();
}

}  // namespace weir::cuda
