// CUDA events that are used again and again, and the time that they measure.
//
// Place: CudaBackend takes the events of its marks from an EventPool and
// measures with BusySpans how long its operations ran.
//
// Terms
//   span  a time in which operations followed each other on a stream without a
//         wait for a copy, between two events on that stream.
//
// Invariants
//   I1. An event is in the pool only while nobody waits for it.
//   I2. At most one span is open, and a span counts once.
// Threads: compatible.
// Owns/borrows: owns events, the ones that were taken and not given back
//   excepted; borrows streams, which may end first.
// Errors: INTERNAL  CUDA refused; names the call.
#ifndef WORKER_COMPUTE_CUDA_EVENTS_H_
#define WORKER_COMPUTE_CUDA_EVENTS_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"

namespace weir::cuda {

class EventPool {
 public:
  // `flags`: those of cudaEventCreateWithFlags.
  explicit EventPool(unsigned flags) : flags_(flags) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // Sets *event to a free event, or to a new one on the current device, or to
  // null after an error.
  absl::Status Take(cudaEvent_t* event);
  // Takes back an event for which nobody waits. Ignores null.
  void Give(cudaEvent_t event);

 private:
  const unsigned flags_;
  std::vector<cudaEvent_t> free_;
};

class BusySpans {
 public:
  BusySpans() = default;
  ~BusySpans();
  BusySpans(const BusySpans&) = delete;
  BusySpans& operator=(const BusySpans&) = delete;

  // Begins a span behind what `stream` has to do, unless one is open.
  absl::Status Open(cudaStream_t stream);
  // Ends the open span, if there is one, behind what `stream` has to do.
  absl::Status Close(cudaStream_t stream);
  // Adds up the closed spans that the device has passed. An operation that
  // failed shows here; its span does not count.
  absl::Status Collect();
  int64_t busy_ns() const { return busy_ns_; }

 private:
  struct Span {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
  };

  EventPool events_{cudaEventDefault};
  Span open_;
  std::deque<Span> spans_;  // closed, in the order of the stream
  int64_t busy_ns_ = 0;
};

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_EVENTS_H_
