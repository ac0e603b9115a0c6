#include "worker/train/phase_timer.h"

#include <algorithm>

namespace weir {

PhaseTimer::PhaseTimer(Clock* clock, std::function<DeviceUsage()> device_usage)
    : clock_(clock), device_usage_(std::move(device_usage)) {
  // Busy time from before belongs to no contribution.
  if (device_usage_) {
    busy_ns_ = device_usage_().busy_ns;
  }
  BeginContribution();
}

void PhaseTimer::BeginContribution() {
  waited_ns_ = {};
  begin_ns_ = clock_->NowNs();
}

Phases PhaseTimer::EndContribution() {
  const int64_t step_ns = clock_->NowNs() - begin_ns_ - waited_ns_[kHold];
  const int64_t free_ns =
      step_ns - waited_ns_[kData] - waited_ns_[kPull] - waited_ns_[kPush];
  Phases phases;
  int64_t compute_ns = free_ns;
  if (device_usage_) {
    const DeviceUsage usage = device_usage_();
    // I1: the device's clock is another one, so it may say more than the step.
    compute_ns = std::clamp<int64_t>(usage.busy_ns - busy_ns_, 0, step_ns);
    busy_ns_ = usage.busy_ns;
    phases.set_on_gpu(true);
    phases.set_device_bytes_used(usage.bytes_used);
    phases.set_device_bytes_reserved(usage.bytes_reserved);
  }
  // I1: a device goes on computing while the caller waits. That much of the
  // waits cost nothing, and is taken off them. Pull comes first: most of these
  // waits are for the values of a later layer.
  int64_t overlap_ns = std::max<int64_t>(compute_ns - free_ns, 0);
  for (const Wait wait : {kPull, kPush, kData}) {
    const int64_t cut_ns = std::min(overlap_ns, waited_ns_[wait]);
    waited_ns_[wait] -= cut_ns;
    overlap_ns -= cut_ns;
  }
  phases.set_contributions(1);
  phases.set_step_ns(step_ns);
  phases.set_data_wait_ns(waited_ns_[kData]);
  phases.set_pull_wait_ns(waited_ns_[kPull]);
  phases.set_push_wait_ns(waited_ns_[kPush]);
  phases.set_compute_ns(compute_ns);
  phases.set_hold_ns(waited_ns_[kHold]);
  return phases;
}

}  // namespace weir
