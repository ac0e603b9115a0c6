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
#include <vector>

#include "absl/strings/string_view.h"

namespace weir {

struct CgroupPaths {
  // Which groups the process is in: "0::/path" (version 2) and
  // "<n>:...,memory,...:/path" (version 1).
  std::string membership = "/proc/self/cgroup";
  // Where the groups are mounted; a controller of version 1 is below it, under
  // its name.
  std::string root = "/sys/fs/cgroup";
};

// The directories that may hold the files of `controller`: of the groups that
// the process is in, of those above them, and of the mount itself. Some of them
// may not exist: a container may see its own group as the mount, and yet be
// told the path that the host sees.
std::vector<std::string> CgroupDirectories(const CgroupPaths& paths,
                                           absl::string_view controller);

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
