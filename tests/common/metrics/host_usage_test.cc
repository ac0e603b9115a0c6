#include "common/metrics/host_usage.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/base/clock.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

struct FakeGroups {
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = dir + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  CgroupPaths paths() const { return {dir + "/membership", dir + "/root"}; }

  const std::string dir = MakeTempDir();
};

double Affinity() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof mask, &mask);
  return CPU_COUNT(&mask);
}

TEST(HostUsageTest, AQuotaOfAnyGroupAboveBoundsTheProcessors) {
  FakeGroups groups;
  groups.Write("membership", "0::/kube/pod\n");
  EXPECT_EQ(ProcessorsAllowed(groups.paths()), Affinity());
  groups.Write("root/kube/cpu.max", "25000 100000\n");
  groups.Write("root/kube/pod/cpu.max", "max 100000\n");
  EXPECT_EQ(ProcessorsAllowed(groups.paths()), 0.25);
}

TEST(HostUsageTest, ReadsQuotasOfVersionOne) {
  FakeGroups groups;
  groups.Write("membership", "4:cpu:/job\n3:memory:/job\n");
  groups.Write("root/cpu/job/cpu.cfs_quota_us", "-1\n");
  groups.Write("root/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ProcessorsAllowed(groups.paths()), Affinity());
  groups.Write("root/cpu/job/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(ProcessorsAllowed(groups.paths()), 0.5);
}

TEST(HostUsageTest, ReadsThePressureOfTheInnermostGroup) {
  FakeGroups groups;
  groups.Write("membership", "0::/kube/pod\n");
  groups.Write("root/kube/memory.pressure",
               "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n");
  EXPECT_EQ(MemoryStallNs(groups.paths()), 7'000);
  groups.Write("root/kube/pod/memory.pressure",
               "some avg10=0.00 avg60=0.00 avg300=0.00 total=123\n"
               "full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n");
  EXPECT_EQ(MemoryStallNs(groups.paths()), 123'000);
}

TEST(HostUsageTest, CountsProcessorTimeMemoryAndHowLateThreadsWake) {
  HostMeter meter;
  const HostUsage before = meter.Read();
  EXPECT_GT(before.resident_bytes, 0);
  EXPECT_GE(before.memory_bytes_max, before.resident_bytes);
  EXPECT_GT(before.processors, 0.0);
  const int64_t deadline = Clock::Real()->NowNs() + 30'000'000'000;
  HostUsage now = before;
  while (now.cpu_ns < before.cpu_ns + 100'000'000 || now.late_count < 2) {
    ASSERT_LT(Clock::Real()->NowNs(), deadline);
    now = meter.Read();
  }
  EXPECT_GE(now.late_ns, 0);
}

}  // namespace
}  // namespace weir
