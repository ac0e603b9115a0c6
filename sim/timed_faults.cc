#include "sim/timed_faults.h"

#include <algorithm>

#include "common/threads/scheduler.h"

namespace weir::sim {

using std::chrono::nanoseconds;

constexpr uint64_t kFailingOneIn = 2;

void TimedFaults::PauseUntil(int process, nanoseconds end) {
  Pause(process);
  paused_.emplace_back(process, end);
}

void TimedFaults::SlowUntil(int process, nanoseconds end, nanoseconds wait,
                            nanoseconds then) {
  SetSlow(process, wait);
  slow_.push_back({process, end, then});
}

void TimedFaults::HangUntil(nanoseconds end, nanoseconds wait) {
  hang_until_ = end;
  slow_until_ = std::max(slow_until_, end + wait);
  hang_ = wait;
}

void TimedFaults::Tick() {
  std::erase_if(paused_, [](const auto& paused) {
    const bool over = Now() >= paused.second;
    if (over) {
      Continue(paused.first);
    }
    return over;
  });
  std::erase_if(slow_, [](const Slow& slow) {
    const bool over = Now() >= slow.end;
    if (over) {
      SetSlow(slow.process, slow.then);
    }
    return over;
  });
  PlaceFaults faults = store_;
  faults.full = Now() < full_until_;
  if (Now() < fail_until_) {
    faults.unavailable_one_in = kFailingOneIn;
  }
  if (Now() < hang_until_) {
    faults.delay_max = std::max(faults.delay_max, hang_);
  }
  place_->SetFaults(faults);
}

}  // namespace weir::sim
