// Measures where a contribution's time went: waits by kind, and compute.
//
// Place: the train loop has one; the Phases that it makes travel to the chief.
//
// Terms
//   hold  time in which the job stood still on purpose, for a checkpoint. It is
//         not part of the step.
//
// Invariants
//   I1. The waits and the compute of a contribution add up to at most its step.
// Threads: compatible.
// Cost: two clock reads for each contribution and two for each wait; one
//   DeviceUsage for each contribution.
#ifndef WORKER_TRAIN_PHASE_TIMER_H_
#define WORKER_TRAIN_PHASE_TIMER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "common/base/clock.h"
#include "common/trace/trace.h"
#include "proto/chief.pb.h"
#include "worker/compute/backend.h"

namespace weir {

class PhaseTimer {
 public:
  enum Wait : int { kData = 0, kPull = 1, kPush = 2, kHold = 3 };
  // By Wait, as timelines call them.
  static constexpr const char* kWaitNames[] = {"data wait", "pull wait",
                                               "push wait", "hold"};

  // `device_usage` is null for a backend without a clock of its own; compute is
  // then the part of the step that no wait took. Borrows `clock`.
  PhaseTimer(Clock* clock, std::function<DeviceUsage()> device_usage);

  void BeginContribution();

  // Calls `function` and counts the time it takes as a wait. Waits do not nest.
  template <typename Function>
  auto Timed(Wait wait, const Function& function) {
    const Span span(this, wait);
    return function();
  }

  // Returns the phases since BeginContribution, with `contributions` = 1.
  Phases EndContribution();

 private:
  class Span {
   public:
    Span(PhaseTimer* timer, Wait wait)
        : timer_(timer), wait_(wait), begin_ns_(timer->clock_->NowNs()) {}
    ~Span() {
      const int64_t end_ns = timer_->clock_->NowNs();
      timer_->waited_ns_[wait_] += end_ns - begin_ns_;
      TraceSlice(kWaitNames[wait_], begin_ns_, end_ns);
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    PhaseTimer* const timer_;
    const Wait wait_;
    const int64_t begin_ns_;
  };

  Clock* const clock_;
  const std::function<DeviceUsage()> device_usage_;
  int64_t begin_ns_ = 0;
  std::array<int64_t, 4> waited_ns_{};  // by Wait
  int64_t busy_ns_ = 0;  // of the device, at the last EndContribution
};

}  // namespace weir

#endif  // WORKER_TRAIN_PHASE_TIMER_H_
