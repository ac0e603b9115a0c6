#include "common/base/clock.h"

#include <thread>

#ifdef WEIR_SIM
#include "common/threads/host_clocks.h"
#include "common/threads/scheduler.h"
#endif

namespace weir {
namespace {

#ifdef WEIR_SIM

class RealClock : public Clock {
 public:
  int64_t NowNs() override { return sim::MonotonicTime().count(); }
  int64_t WallNowNs() override { return sim::WallTime().count(); }
  void SleepFor(std::chrono::nanoseconds time) override { sim::SleepFor(time); }
};

#else

class RealClock : public Clock {
 public:
  int64_t NowNs() override {
    return std::chrono::steady_clock::now().time_since_epoch() /
           std::chrono::nanoseconds(1);
  }
  int64_t WallNowNs() override {
    return std::chrono::system_clock::now().time_since_epoch() /
           std::chrono::nanoseconds(1);
  }
  void SleepFor(std::chrono::nanoseconds time) override {
    std::this_thread::sleep_for(time);
  }
};

#endif

}  // namespace

Clock* Clock::Real() {
  // Never deleted: threads that outlive main may still ask for the time.
  static RealClock* const clock = new RealClock();
  return clock;
}

}  // namespace weir
