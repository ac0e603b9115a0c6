// Where a contribution's time went: waits by kind, compute, the rest.
//
// Place: the train loop has one; what it makes travels to the chief.
//
// Terms
//   hold  time in which the job stood still on purpose, for a checkpoint: no
//         part of the step.
//
// Invariants
//   I1. Waits and compute of a contribution are together at most its step.
// Threads: compatible.
// Cost: two clock reads a contribution and two a wait; one DeviceUsage a
// contribution.
#ifndef WORKER_TRAIN_PHASE_TIMER_H_
#define WORKER_TRAIN_PHASE_TIMER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "common/base/clock.h"
#include "proto/chief.pb.h"
#include "worker/compute/backend.h"

namespace weir {

class PhaseTimer {
 public:
  enum Wait : int { kData = 0, kPull = 1, kPush = 2, kHold = 3 };

  // `device_usage` null: the backend has no clock of its own, and compute is
  // what the waits leave. `clock` is borrowed.
  PhaseTimer(Clock* clock, std::function<DeviceUsage()> device_usage);

  void BeginContribution();

  // Calls `function`; what it takes is a wait. Waits do not nest.
  template <typename Function>
  auto Timed(Wait wait, const Function& function) {
    const Span span(this, wait);
    return function();
  }

  // Of the contribution since BeginContribution, `contributions` = 1.
  Phases EndContribution();

 private:
  class Span {
   public:
    Span(PhaseTimer* timer, Wait wait)
        : timer_(timer), wait_(wait), begin_ns_(timer->clock_->NowNs()) {}
    ~Span() {
      timer_->waited_ns_[wait_] += timer_->clock_->NowNs() - begin_ns_;
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
