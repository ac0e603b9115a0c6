#include "server/chief/checkpoint/checkpoint_schedule.h"

#include <algorithm>
#include <cmath>

namespace weir {
namespace {

constexpr uint64_t kMarginMin = 2;
// Steps ahead while the speed is not measured yet.
constexpr uint64_t kUnknownSpeedMargin = 16;
// Doubling ends here, long before it could overflow.
constexpr uint64_t kMarginMax = uint64_t{1} << 20;
constexpr int64_t kObserveNs = 500'000'000;
// Progress is up to a heartbeat old, and the request needs a moment.
constexpr double kAheadSeconds = 1.0;

}  // namespace

CheckpointSchedule::CheckpointSchedule(Options options, uint64_t step,
                                       int64_t now_ns)
    : options_(options),
      tried_step_(step),
      tried_ns_(now_ns),
      seen_step_(step),
      seen_ns_(now_ns),
      margin_(kMarginMin) {}

void CheckpointSchedule::Observe(uint64_t step, int64_t now_ns) {
  if (now_ns - seen_ns_ >= kObserveNs) {
    steps_per_second_ = static_cast<double>(step - seen_step_) * 1e9 /
                        static_cast<double>(now_ns - seen_ns_);
    seen_step_ = step;
    seen_ns_ = now_ns;
  }
}

uint64_t CheckpointSchedule::Margin() const {
  if (steps_per_second_ < 0.0) {
    return std::max(margin_, kUnknownSpeedMargin);
  }
  return std::max(margin_, static_cast<uint64_t>(
                               std::ceil(steps_per_second_ * kAheadSeconds)));
}

std::optional<uint64_t> CheckpointSchedule::Due(uint64_t step,
                                                int64_t now_ns) const {
  if (options_.every_steps > 0) {
    const uint64_t every = options_.every_steps;
    uint64_t target = (tried_step_ / every + 1) * every;
    if (!options_.sync) {
      if (step >= target) {
        return step;
      }
    } else if (target <= step + Margin()) {
      // The target may be passed before the shards hear of it. The first
      // multiple that is surely still to come takes its place.
      if (target < step + margin_) {
        target = (step + Margin() + every - 1) / every * every;
      }
      return target;
    }
  }
  if (options_.every_seconds > 0.0 &&
      static_cast<double>(now_ns - tried_ns_) * 1e-9 >=
          options_.every_seconds &&
      step > tried_step_) {
    return options_.sync ? step + Margin() : step;
  }
  return std::nullopt;
}

uint64_t CheckpointSchedule::VersionAhead(uint64_t step, uint64_t last) const {
  return std::min(step + Margin(), last);
}

void CheckpointSchedule::OnTried(uint64_t step, int64_t now_ns) {
  tried_step_ = std::max(tried_step_, step);
  tried_ns_ = now_ns;
  // What a busy moment taught is forgotten in time. A disk that is always slow
  // costs one miss in some five tries so.
  margin_ = std::max(kMarginMin, margin_ - margin_ / 8);
}

void CheckpointSchedule::OnPassed() {
  margin_ = std::min(2 * Margin(), kMarginMax);
}

}  // namespace weir
