#include "common/metrics/host_usage.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/threads/thread.h"

namespace weir {
namespace {

constexpr std::chrono::milliseconds kSleep{50};

// Processors of a quota in microseconds of every period; 0: there is none.
double QuotaIn(const std::string& group) {
  std::string quota;
  double period = 0.0;
  std::ifstream two(group + "/cpu.max");  // version 2: "max 100000"
  if (!(two >> quota >> period)) {
    std::ifstream(group + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(group + "/cpu.cfs_period_us") >> period;
  }
  double used = 0.0;
  if (absl::SimpleAtod(quota, &used) && used > 0.0 && period > 0.0) {
    return used / period;
  }
  return 0.0;
}

int64_t Nanoseconds(const timeval& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + int64_t{time.tv_usec} * 1'000;
}

// Reads "some avg10=0.00 avg60=0.00 avg300=0.00 total=MICROSECONDS".
bool ReadStall(const std::string& path, int64_t* ns) {
  std::ifstream file(path);
  std::string word;
  for (int i = 0; i < 5 && file >> word; ++i) {
    int64_t micros = 0;
    if (word.rfind("total=", 0) == 0 &&
        absl::SimpleAtoi(word.substr(6), &micros)) {
      *ns = micros * 1'000;
      return true;
    }
  }
  return false;
}

}  // namespace

double ProcessorsAllowed(const CgroupPaths& paths) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  double allowed = std::max(1U, Thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
    allowed = CPU_COUNT(&mask);
  }
  for (const std::string& group : CgroupDirectories(paths, "cpu")) {
    const double quota = QuotaIn(group);
    if (quota > 0.0) {
      allowed = std::min(allowed, quota);
    }
  }
  return allowed;
}

int64_t MemoryStallNs(const CgroupPaths& paths) {
  int64_t ns = 0;
  // The mount comes first, and then the groups from the innermost outwards.
  const std::vector<std::string> groups = CgroupDirectories(paths, "memory");
  for (size_t i = 1; i < groups.size(); ++i) {
    if (ReadStall(groups[i] + "/memory.pressure", &ns)) {
      return ns;
    }
  }
  if ((!groups.empty() && ReadStall(groups[0] + "/memory.pressure", &ns)) ||
      ReadStall("/proc/pressure/memory", &ns)) {
    return ns;
  }
  return 0;
}

HostMeter::HostMeter() : thread_([this] { Run(); }) {}

HostMeter::~HostMeter() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    stopped_.NotifyAll();
  }
  thread_.join();
}

void HostMeter::Run() {
  MutexLock lock(&mutex_);
  while (!stop_) {
    const int64_t begin_ns = Clock::Real()->NowNs();
    if (stopped_.WaitFor(&mutex_, kSleep)) {
      continue;
    }
    const int64_t slept_ns = Clock::Real()->NowNs() - begin_ns;
    late_ns_ += std::max<int64_t>(
        slept_ns - std::chrono::nanoseconds(kSleep).count(), 0);
    ++late_count_;
  }
}

HostUsage HostMeter::Read() const {
  HostUsage usage;
  // Limits may change while the process runs.
  usage.processors = ProcessorsAllowed();
  usage.memory_bytes_max = MemoryLimitBytes();
  usage.resident_bytes = ResidentBytes();
  usage.memory_stall_ns = MemoryStallNs();
  rusage used = {};
  if (getrusage(RUSAGE_SELF, &used) == 0) {
    usage.cpu_ns = Nanoseconds(used.ru_utime) + Nanoseconds(used.ru_stime);
    usage.major_faults = used.ru_majflt;
  }
  MutexLock lock(&mutex_);
  usage.late_ns = late_ns_;
  usage.late_count = late_count_;
  return usage;
}

}  // namespace weir
