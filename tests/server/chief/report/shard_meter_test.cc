#include "server/chief/report/shard_meter.h"

#include <gtest/gtest.h>

#include <vector>

namespace weir {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

PsStatus StatusAt(uint64_t second) {
  PsStatus status;
  status.mutable_hello()->set_incarnation(1);
  status.mutable_hello()->set_history(1);
  status.set_chunks_accepted(second * 100);
  status.set_bytes_received(second * 1'000'000);
  status.set_bytes_sent(second * 2'000'000);
  status.mutable_apply()->add_bucket(0);
  status.mutable_apply()->add_bucket(second * 100);
  status.mutable_apply()->set_sum_ns(second * 100 * 200'000);
  status.add_last_contributor(second * 30);
  status.add_last_contributor(second * 70);
  status.add_last_alone_ns(second * 1'000'000);
  status.add_last_alone_ns(second * 9'000'000);
  status.mutable_usage()->set_cpu_ns(second * 500'000'000);
  return status;
}

TEST(ShardMeterTest, RatesAndMeansAreOfTheWindow) {
  ShardMeter meter;
  for (uint64_t i = 0; i < 20; ++i) {
    meter.Add(StatusAt(i), 2, static_cast<int64_t>(i) * kSecond);
  }
  ShardReport report;
  meter.Fill(&report);
  EXPECT_NEAR(report.updates_per_second(), 100.0, 1e-9);
  EXPECT_NEAR(report.bytes_received_per_second(), 1e6, 1e-3);
  EXPECT_NEAR(report.bytes_sent_per_second(), 2e6, 1e-3);
  EXPECT_NEAR(report.apply_seconds(), 200e-6, 1e-12);
  EXPECT_EQ(report.park_seconds(), 0.0);
  EXPECT_NEAR(report.host_load().cpu_seconds_per_second(), 0.5, 1e-9);
  std::vector<double> count(2);
  std::vector<double> seconds(2);
  meter.AddLast(&count, &seconds);
  EXPECT_NEAR(count[1] / (count[0] + count[1]), 0.7, 1e-9);
  EXPECT_NEAR(seconds[1] / seconds[0], 9.0, 1e-9);
}

TEST(ShardMeterTest, AProcessThatWasReplacedBeginsAnew) {
  ShardMeter meter;
  for (uint64_t i = 100; i < 110; ++i) {
    meter.Add(StatusAt(i), 2, static_cast<int64_t>(i) * kSecond);
  }
  for (uint64_t i = 110; i < 113; ++i) {
    PsStatus status = StatusAt(i - 110);
    status.mutable_hello()->set_incarnation(2);
    meter.Add(status, 2, static_cast<int64_t>(i) * kSecond);
  }
  ShardReport report;
  meter.Fill(&report);
  EXPECT_NEAR(report.updates_per_second(), 100.0, 1e-9);
}

TEST(ShardMeterTest, KeepsNoMoreSlotsThanTheJobHas) {
  ShardMeter meter;
  PsStatus status = StatusAt(1);
  for (int i = 0; i < 100'000; ++i) {
    status.add_last_contributor(1);
    status.add_last_alone_ns(1);
  }
  meter.Add(status, 2, kSecond);
  EXPECT_EQ(meter.newest().last_contributor_size(), 2);
  EXPECT_EQ(meter.newest().last_alone_ns_size(), 2);
}

}  // namespace
}  // namespace weir
