// How this process fares on its host: processors, memory, and how long it
// waits for either.
//
// Place: every task of a job has one HostMeter; what it reads travels to the
// chief, which compares tasks, and into the task's metrics.
//
// Terms
//   late   a thread that slept for a fixed time woke later than asked. Where
//          processors are free that is some 0.1 ms. It grows when other
//          processes take them, and when a control group has used up its share.
//
// Threads: safe.
// Cost: one thread that wakes 20 times a second; a reading opens a few files.
#ifndef COMMON_METRICS_HOST_USAGE_H_
#define COMMON_METRICS_HOST_USAGE_H_

#include <cstdint>

#include "common/base/memory_limit.h"
#include "common/base/mutex.h"
#include "common/threads/thread.h"

namespace weir {

// Sums since the process began, and states.
struct HostUsage {
  int64_t cpu_ns = 0;  // processor time, user and system
  int64_t major_faults = 0;
  int64_t late_ns = 0;
  int64_t late_count = 0;
  int64_t memory_stall_ns = 0;  // pressure "some"; 0 where there is none
  double processors = 0.0;      // that it may use, by affinity and cgroup
  int64_t resident_bytes = 0;
  int64_t memory_bytes_max = 0;
};

// The processors of the affinity mask, or fewer where a control group that the
// process is in, or one above it, has a quota.
double ProcessorsAllowed(const CgroupPaths& paths = {});

// Nanoseconds for which something in the innermost group stood still for
// memory, from the kernel's pressure file; of the whole machine where groups
// have no such file, and 0 where there is none.
int64_t MemoryStallNs(const CgroupPaths& paths = {});

class HostMeter {
 public:
  HostMeter();
  ~HostMeter();
  HostMeter(const HostMeter&) = delete;
  HostMeter& operator=(const HostMeter&) = delete;

  HostUsage Read() const;

 private:
  void Run();

  mutable Mutex mutex_;
  CondVar stopped_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t late_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t late_count_ ABSL_GUARDED_BY(mutex_) = 0;
  Thread thread_;  // last: it uses all the rest
};

}  // namespace weir

#endif  // COMMON_METRICS_HOST_USAGE_H_
