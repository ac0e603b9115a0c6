// Faults of a simulated job that last for a while.
//
// Threads: for fibres.
#ifndef SIM_TIMED_FAULTS_H_
#define SIM_TIMED_FAULTS_H_

#include <chrono>
#include <utility>
#include <vector>

#include "sim/places/place.h"

namespace weir::sim {

class TimedFaults {
 public:
  // `store` is what the store does in between.
  TimedFaults(Place* place, const PlaceFaults& store)
      : place_(place), store_(store) {
    place_->SetFaults(store);
  }

  void PauseUntil(int process, std::chrono::nanoseconds end);
  // Each turn of the process takes up to `wait`; afterwards up to `then`.
  void SlowUntil(int process, std::chrono::nanoseconds end,
                 std::chrono::nanoseconds wait, std::chrono::nanoseconds then);
  void FullUntil(std::chrono::nanoseconds end) { full_until_ = end; }
  // Every second call of it fails, or is not answered.
  void FailUntil(std::chrono::nanoseconds end) { fail_until_ = end; }
  // Calls of the store that begin before `end` take up to `wait`.
  void HangUntil(std::chrono::nanoseconds end, std::chrono::nanoseconds wait);
  // From now on the store says what became of every call.
  void Heal() { store_.unavailable_one_in = 0; }

  // Ends those whose time is over. To be called often.
  void Tick();

  // Calls of the store may be slow until then; or it is full, or fails.
  std::chrono::nanoseconds slow_until() const { return slow_until_; }
  std::chrono::nanoseconds full_until() const { return full_until_; }
  std::chrono::nanoseconds fail_until() const { return fail_until_; }

 private:
  struct Slow {
    int process = 0;
    std::chrono::nanoseconds end{0};
    std::chrono::nanoseconds then{0};
  };

  Place* const place_;
  PlaceFaults store_;
  std::vector<std::pair<int, std::chrono::nanoseconds>> paused_;  // until when
  std::vector<Slow> slow_;
  std::chrono::nanoseconds full_until_{0};
  std::chrono::nanoseconds fail_until_{0};
  std::chrono::nanoseconds hang_until_{0};
  std::chrono::nanoseconds slow_until_{0};
  std::chrono::nanoseconds hang_{0};
};

}  // namespace weir::sim

#endif  // SIM_TIMED_FAULTS_H_
