#include "common/base/clock.h"

namespace weir {
namespace {

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
};

}  // namespace

Clock* Clock::Real() {
  // Never deleted: threads that outlive main may still ask for the time.
  static RealClock* const clock = new RealClock();
  return clock;
}

}  // namespace weir
