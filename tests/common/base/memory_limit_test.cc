#include "common/base/memory_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "tests/common/temp_dir.h"

namespace weir {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// A folder that looks like what the kernel shows.
struct FakeCgroups {
  FakeCgroups() : dir(MakeTempDir()) {}

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = dir + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  int64_t Limit() { return CgroupMemoryBytes(paths()); }
  CgroupPaths paths() const { return {dir + "/membership", dir + "/root"}; }

  const std::string dir;
};

TEST(MemoryLimitTest, IsTheSmallestOfTheGroupAndThoseAboveIt) {
  FakeCgroups groups;
  groups.Write("membership", "0::/kube/pod:1/main\n");
  EXPECT_EQ(groups.Limit(), kNoLimit);
  groups.Write("root/kube/pod:1/main/memory.max", "max\n");
  EXPECT_EQ(groups.Limit(), kNoLimit);
  groups.Write("root/kube/memory.max", "3000000000\n");
  EXPECT_EQ(groups.Limit(), 3000000000);
  groups.Write("root/kube/pod:1/memory.max", "1000000\n");
  EXPECT_EQ(groups.Limit(), 1000000);
  groups.Write("root/kube/pod:1/main/memory.max", "2000000\n");
  EXPECT_EQ(groups.Limit(), 1000000);
}

TEST(MemoryLimitTest, AContainerSeesItsOwnGroupAsTheRoot) {
  FakeCgroups groups;
  groups.Write("membership", "0::/\n");
  groups.Write("root/memory.max", "5000\n");
  EXPECT_EQ(groups.Limit(), 5000);
  // The path is the host's.
  groups.Write("membership", "0::/docker/0123\n");
  EXPECT_EQ(groups.Limit(), 5000);
  groups.Write("membership", "0::/../../other\n");
  EXPECT_EQ(groups.Limit(), 5000);
}

TEST(MemoryLimitTest, ReadsVersionOne) {
  FakeCgroups groups;
  groups.Write("membership",
               "9:cpu,cpuacct:/a\n4:blkio,memory:/a/b\n1:name=systemd:/a\n");
  groups.Write("root/memory/memory.limit_in_bytes", "9223372036854771712\n");
  groups.Write("root/memory/a/memory.limit_in_bytes", "7000\n");
  groups.Write("root/memory/a/b/memory.limit_in_bytes", "9000\n");
  groups.Write("root/a/memory.max", "1\n");
  EXPECT_EQ(groups.Limit(), 7000);
}

TEST(MemoryLimitTest, WhatCannotBeReadIsNoLimit) {
  FakeCgroups groups;
  EXPECT_EQ(groups.Limit(), kNoLimit);
  groups.Write("membership", "0::/a\n::\nnonsense\n\n4:memory\n");
  groups.Write("root/a/memory.max", "-5\n");
  groups.Write("root/memory/memory.limit_in_bytes", "many\n");
  EXPECT_EQ(groups.Limit(), kNoLimit);
}

TEST(MemoryLimitTest, IsNeverMoreThanTheMachineHas) {
  FakeCgroups groups;
  const int64_t machine =
      int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)};
  EXPECT_EQ(MemoryLimitBytes(groups.paths()), machine);
  groups.Write("membership", "0::/\n");
  groups.Write("root/memory.max", "4096\n");
  EXPECT_EQ(MemoryLimitBytes(groups.paths()), 4096);
  EXPECT_GT(MemoryLimitBytes(), 0);
}

TEST(MemoryLimitTest, TheProcessHasSomeMemoryAndLessThanTheMachine) {
  EXPECT_GT(ResidentBytes(), 0);
  EXPECT_LT(ResidentBytes(), MemoryLimitBytes());
}

}  // namespace
}  // namespace weir
