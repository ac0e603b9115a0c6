#include "worker/train/phase_timer.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

using std::chrono::nanoseconds;

// Waits as a caller would, on a clock that moves only here.
struct Contribution {
  FakeClock clock;
  DeviceUsage usage;

  void Wait(PhaseTimer* timer, PhaseTimer::Wait wait, int ns) {
    EXPECT_EQ(timer->Timed(wait,
                           [&] {
                             clock.Advance(nanoseconds(ns));
                             return ns;
                           }),
              ns);
  }

  Phases Run(PhaseTimer* timer) {
    timer->BeginContribution();
    Wait(timer, PhaseTimer::kData, 10);
    Wait(timer, PhaseTimer::kPull, 20);
    clock.Advance(nanoseconds(100));
    Wait(timer, PhaseTimer::kPull, 5);
    Wait(timer, PhaseTimer::kHold, 1000);
    clock.Advance(nanoseconds(200));
    Wait(timer, PhaseTimer::kPush, 40);
    return timer->EndContribution();
  }
};

TEST(PhaseTimerTest, ComputeIsWhatWaitsLeaveAndAHoldIsNoPartOfAStep) {
  Contribution contribution;
  PhaseTimer timer(&contribution.clock, nullptr);
  for (int repeat = 0; repeat < 2; ++repeat) {
    const Phases phases = contribution.Run(&timer);
    EXPECT_EQ(phases.contributions(), 1u);
    EXPECT_EQ(phases.step_ns(), 375u);
    EXPECT_EQ(phases.data_wait_ns(), 10u);
    EXPECT_EQ(phases.pull_wait_ns(), 25u);
    EXPECT_EQ(phases.push_wait_ns(), 40u);
    EXPECT_EQ(phases.compute_ns(), 300u);
    EXPECT_FALSE(phases.on_gpu());
    // Between contributions nothing counts.
    contribution.clock.Advance(nanoseconds(77));
  }
}

TEST(PhaseTimerTest, OnADeviceComputeIsWhatItsOwnClockSays) {
  Contribution contribution;
  contribution.usage = {.busy_ns = 5000, .bytes_used = 3, .bytes_reserved = 8};
  PhaseTimer timer(&contribution.clock, [&] { return contribution.usage; });
  contribution.usage.busy_ns += 250;
  const Phases phases = contribution.Run(&timer);
  EXPECT_TRUE(phases.on_gpu());
  EXPECT_EQ(phases.compute_ns(), 250u);
  EXPECT_EQ(phases.pull_wait_ns(), 25u);
  EXPECT_EQ(phases.step_ns(), 375u);
  EXPECT_EQ(phases.device_bytes_used(), 3u);
  EXPECT_EQ(phases.device_bytes_reserved(), 8u);
  contribution.usage.busy_ns += 7;
  EXPECT_EQ(contribution.Run(&timer).compute_ns(), 7u);
}

TEST(PhaseTimerTest, AWaitInWhichTheDeviceComputedOnIsNoStandstill) {
  Contribution contribution;
  PhaseTimer timer(&contribution.clock, [&] { return contribution.usage; });
  contribution.usage.busy_ns += 310;  // 300 are free
  Phases phases = contribution.Run(&timer);
  EXPECT_EQ(phases.compute_ns(), 310u);
  EXPECT_EQ(phases.pull_wait_ns(), 15u);
  EXPECT_EQ(phases.push_wait_ns(), 40u);
  EXPECT_EQ(phases.data_wait_ns(), 10u);
  // More than the step: another clock.
  contribution.usage.busy_ns += 9999;
  phases = contribution.Run(&timer);
  EXPECT_EQ(phases.compute_ns(), 375u);
  EXPECT_EQ(
      phases.pull_wait_ns() + phases.push_wait_ns() + phases.data_wait_ns(),
      0u);
}

}  // namespace
}  // namespace weir
