#include "worker/compute/cuda/events.h"

#include <utility>

#include "worker/compute/cuda/device_memory.h"

namespace weir::cuda {

EventPool::~EventPool() {
  for (cudaEvent_t event : free_) {
    cudaEventDestroy(event);
  }
}

absl::Status EventPool::Take(cudaEvent_t* event) {
  *event = nullptr;
  if (free_.empty()) {
    return ToStatus(cudaEventCreateWithFlags(event, flags_), "cudaEventCreate");
  }
  *event = free_.back();
  free_.pop_back();
  return absl::OkStatus();
}

void EventPool::Give(cudaEvent_t event) {
  if (event != nullptr) {
    free_.push_back(event);
  }
}

BusySpans::~BusySpans() {
  // CUDA destroys an event that has not passed as soon as it has.
  for (const Span& span : spans_) {
    events_.Give(span.begin);
    events_.Give(span.end);
  }
  events_.Give(open_.begin);
}

absl::Status BusySpans::Open(cudaStream_t stream) {
  if (open_.begin != nullptr) {
    return absl::OkStatus();  // I2
  }
  absl::Status status = events_.Take(&open_.begin);
  status.Update(
      ToStatus(cudaEventRecord(open_.begin, stream), "cudaEventRecord"));
  return status;
}

absl::Status BusySpans::Close(cudaStream_t stream) {
  if (open_.begin == nullptr) {
    return absl::OkStatus();
  }
  absl::Status status = events_.Take(&open_.end);
  status.Update(
      ToStatus(cudaEventRecord(open_.end, stream), "cudaEventRecord"));
  spans_.push_back(std::exchange(open_, Span()));
  return status;
}

absl::Status BusySpans::Collect() {
  absl::Status status;
  // Spans end in the order of the stream, so none behind the first unfinished
  // one can be over.
  while (!spans_.empty()) {
    const Span span = spans_.front();
    const cudaError_t error = cudaEventQuery(span.end);
    if (error == cudaErrorNotReady) {
      cudaGetLastError();  // it would be taken for the next kernel's
      break;
    }
    // The error of an earlier operation: kernels fail late.
    status.Update(ToStatus(error, "operation"));
    float milliseconds = 0.0f;
    if (cudaEventElapsedTime(&milliseconds, span.begin, span.end) ==
        cudaSuccess) {
      busy_ns_ += static_cast<int64_t>(milliseconds * 1e6f);
    }
    // I1, I2: the device has passed both, so the next span may record them.
    events_.Give(span.begin);
    events_.Give(span.end);
    spans_.pop_front();
  }
  return status;
}

}  // namespace weir::cuda
