#include "server/chief/report/host_load.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(HostLoadTest, IsWhatGrewBetweenTwoReadings) {
  ProcessUsage begin;
  begin.set_cpu_ns(1'000'000'000);
  begin.set_major_faults(10);
  begin.set_late_ns(5'000'000);
  begin.set_late_count(10);
  ProcessUsage end = begin;
  end.set_cpu_ns(4'000'000'000);
  end.set_major_faults(30);
  end.set_late_ns(25'000'000);
  end.set_late_count(20);
  end.set_memory_stall_ns(500'000'000);
  end.set_processors(0.5);
  end.set_resident_bytes(7);
  const HostReport load = HostLoad(begin, end, 2.0);
  EXPECT_DOUBLE_EQ(load.cpu_seconds_per_second(), 1.5);
  EXPECT_DOUBLE_EQ(load.major_faults_per_second(), 10.0);
  EXPECT_DOUBLE_EQ(load.wake_late_seconds(), 0.002);
  EXPECT_DOUBLE_EQ(load.memory_stall_share(), 0.25);
  EXPECT_DOUBLE_EQ(load.processors(), 0.5);
  EXPECT_DOUBLE_EQ(load.resident_bytes(), 7.0);
}

TEST(HostLoadTest, WithOneReadingOnlyStatesAreKnown) {
  ProcessUsage usage;
  usage.set_cpu_ns(1'000'000'000);
  usage.set_processors(2);
  const HostReport load = HostLoad(usage, usage, 0.0);
  EXPECT_EQ(load.cpu_seconds_per_second(), 0.0);
  EXPECT_EQ(load.processors(), 2.0);
}

// Another process has taken the place: nothing may become negative.
TEST(HostLoadTest, SumsThatShrankCountAsNothing) {
  ProcessUsage begin;
  begin.set_cpu_ns(5'000'000'000);
  EXPECT_EQ(HostLoad(begin, ProcessUsage(), 1.0).cpu_seconds_per_second(), 0.0);
}

}  // namespace
}  // namespace weir
