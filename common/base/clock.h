// Time as a constructor argument.
//
// Terms
//   Now      monotonic nanoseconds; only differences mean anything.
//   WallNow  nanoseconds since the Unix epoch, for files and logs only.
//   SleepFor returns when so much time has passed.
// Threads: safe.
#ifndef COMMON_BASE_CLOCK_H_
#define COMMON_BASE_CLOCK_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace weir {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowNs() = 0;
  virtual int64_t WallNowNs() = 0;
  virtual void SleepFor(std::chrono::nanoseconds time) = 0;

  // The process's real clock; never deleted.
  static Clock* Real();
};

// A clock that moves only when a test says so.
class FakeClock : public Clock {
 public:
  int64_t NowNs() override { return now_ns_; }
  int64_t WallNowNs() override { return now_ns_ + wall_offset_ns_; }
  void SleepFor(std::chrono::nanoseconds time) override { Advance(time); }
  void Advance(std::chrono::nanoseconds by) { now_ns_ += by.count(); }
  // Sets the wall clock forward or back, and leaves the monotonic clock alone.
  void StepWall(std::chrono::nanoseconds by) { wall_offset_ns_ += by.count(); }

 private:
  std::atomic<int64_t> wall_offset_ns_{0};
  std::atomic<int64_t> now_ns_{1'000'000'000};
};

// Clock::Real()->NowNs() in the form of the standard library's clocks.
struct MonotonicClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<MonotonicClock>;
  static constexpr bool is_steady = true;
  static time_point now() {
    return time_point(duration(Clock::Real()->NowNs()));
  }
};

// A time that a person gave in seconds.
inline std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000.0));
}

}  // namespace weir

#endif  // COMMON_BASE_CLOCK_H_
