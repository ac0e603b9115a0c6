#include "server/chief/report/worker_meter.h"

#include <gtest/gtest.h>

#include <vector>

#include "client/cc/parameters/contribution.h"

namespace weir {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// What a worker says each second: `count` contributions of 100 ms.
Progress Heartbeat(uint64_t count) {
  Progress progress;
  Phases* const phases = progress.mutable_phases();
  phases->set_contributions(count);
  phases->set_step_ns(count * 100'000'000);
  phases->set_data_wait_ns(count * 10'000'000);
  phases->set_pull_wait_ns(count * 20'000'000);
  phases->set_push_wait_ns(count * 5'000'000);
  phases->set_compute_ns(count * 65'000'000);
  phases->set_hold_ns(count * 1'000'000);
  for (uint64_t i = 0; i < count; ++i) {
    progress.add_report()->set_rows(32);
  }
  progress.set_bytes_pushed(count * 1000);
  progress.set_bytes_pulled(count * 2000);
  return progress;
}

TEST(WorkerMeterTest, KnowsNothingBeforeTwoHeartbeats) {
  WorkerMeter meter;
  meter.Add(Heartbeat(10), 1, kSecond);
  WorkerReport report;
  meter.Fill(&report);
  EXPECT_EQ(report.step_seconds(), 0.0);
  EXPECT_EQ(report.examples_per_second(), 0.0);
}

TEST(WorkerMeterTest, SharesAndRatesAreOfTheWindow) {
  WorkerMeter meter;
  for (int i = 0; i < 30; ++i) {
    meter.Add(Heartbeat(5), 1, i * kSecond);
  }
  WorkerReport report;
  meter.Fill(&report);
  EXPECT_NEAR(report.step_seconds(), 0.1, 1e-9);
  EXPECT_NEAR(report.contributions_per_second(), 5.0, 1e-9);
  EXPECT_NEAR(report.examples_per_second(), 160.0, 1e-9);
  EXPECT_NEAR(report.data_share(), 0.1, 1e-9);
  EXPECT_NEAR(report.pull_share(), 0.2, 1e-9);
  EXPECT_NEAR(report.push_share(), 0.05, 1e-9);
  EXPECT_NEAR(report.compute_share(), 0.65, 1e-9);
  EXPECT_NEAR(report.hold_share(), 0.005, 1e-9);
  EXPECT_NEAR(report.bytes_pushed_per_second(), 5000.0, 1e-6);
  EXPECT_NEAR(report.bytes_pulled_per_second(), 10000.0, 1e-6);
}

TEST(WorkerMeterTest, ForgetsWhatIsOlderThanTheWindow) {
  WorkerMeter meter;
  for (int i = 0; i < 30; ++i) {
    meter.Add(Heartbeat(i < 15 ? 9 : 3), 1, i * kSecond);
  }
  WorkerReport report;
  meter.Fill(&report);
  EXPECT_NEAR(report.contributions_per_second(), 3.0, 1e-9);
}

// One contribution in 20 s: the window stays until there are three.
TEST(WorkerMeterTest, AWindowOfLongStepsGrows) {
  WorkerMeter meter;
  for (int i = 0; i < 60; ++i) {
    Progress progress = Heartbeat(i % 20 == 19 ? 1 : 0);
    progress.mutable_phases()->set_step_ns(progress.phases().contributions() *
                                           20 * kSecond);
    meter.Add(progress, 1, i * kSecond);
  }
  WorkerReport report;
  meter.Fill(&report);
  EXPECT_NEAR(report.step_seconds(), 20.0, 1e-6);
}

TEST(WorkerMeterTest, WaitsByShardAndVariableAreOfTheSteps) {
  WorkerMeter meter;
  for (uint64_t i = 0; i < 20; ++i) {
    Progress progress = Heartbeat(10);
    WorkerLoad* const load = progress.mutable_load();
    load->add_shard_wait_ns(i * 100'000'000);
    load->add_shard_wait_ns(i * 300'000'000);
    load->add_variable_wait_ns(i * 200'000'000);
    meter.Add(progress, 2, static_cast<int64_t>(i) * kSecond);
  }
  WorkerReport report;
  meter.Fill(&report);
  ASSERT_EQ(report.shard_wait_share_size(), 2);
  EXPECT_NEAR(report.shard_wait_share(0), 0.1, 1e-9);
  EXPECT_NEAR(report.shard_wait_share(1), 0.3, 1e-9);
  double seconds = 0.0;
  std::vector<double> waits;
  meter.AddWaits(&seconds, &waits);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_NEAR(waits[0] / seconds, 0.2, 1e-9);
}

TEST(WorkerMeterTest, KeepsNoMoreThanTheJobHas) {
  WorkerMeter meter;
  for (uint64_t i = 0; i < 3; ++i) {
    Progress progress = Heartbeat(10);
    for (int k = 0; k < 10'000; ++k) {
      progress.mutable_load()->add_shard_wait_ns(i);
      progress.mutable_load()->add_variable_wait_ns(i);
    }
    meter.Add(progress, 3, static_cast<int64_t>(i) * kSecond);
  }
  WorkerReport report;
  meter.Fill(&report);
  EXPECT_EQ(report.shard_wait_share_size(), 3);
  double seconds = 0.0;
  std::vector<double> waits;
  meter.AddWaits(&seconds, &waits);
  EXPECT_EQ(waits.size(), size_t{kVariableWaitsMax});
}

// Its sums begin anew, and so does the window of them.
TEST(WorkerMeterTest, AnotherProcessInTheSlotBeginsAnew) {
  WorkerMeter meter;
  for (uint64_t i = 0; i < 10; ++i) {
    Progress progress = Heartbeat(10);
    ProcessUsage* const usage = progress.mutable_load()->mutable_usage();
    usage->set_cpu_ns((i < 7 ? 100 + i : i - 6) * kSecond);
    progress.mutable_load()->add_shard_wait_ns(i < 7 ? 90 * kSecond : 0);
    meter.Add(progress, 1, static_cast<int64_t>(i) * kSecond);
  }
  WorkerReport report;
  meter.Fill(&report);
  EXPECT_NEAR(report.host_load().cpu_seconds_per_second(), 1.0, 1e-9);
  EXPECT_NEAR(report.shard_wait_share(0), 0.0, 1e-9);
}

}  // namespace
}  // namespace weir
