// How much memory this process may use.
//
// In a container the machine's memory is not the bound: the kernel kills a
// process whose control group (cgroup) reaches its limit.
//
// Threads: safe.
#ifndef COMMON_BASE_MEMORY_LIMIT_H_
#define COMMON_BASE_MEMORY_LIMIT_H_

#include <cstdint>
#include <string>

namespace weir {

struct CgroupPaths {
  // Which groups the process is in: "0::/path" (version 2) and
  // "<n>:...,memory,...:/path" (version 1).
  std::string membership = "/proc/self/cgroup";
  // Where the groups are mounted; the memory controller of version 1 is below
  // it at "memory".
  std::string root = "/sys/fs/cgroup";
};

// The smallest limit of the groups that the process is in and of those above
// them; INT64_MAX if none has a limit.
int64_t CgroupMemoryBytes(const CgroupPaths& paths);

// The smaller of CgroupMemoryBytes and the machine's memory.
int64_t MemoryLimitBytes(const CgroupPaths& paths = {});

// How much of the machine's memory this process has now; 0 if the system does
// not say.
int64_t ResidentBytes();

}  // namespace weir

#endif  // COMMON_BASE_MEMORY_LIMIT_H_
