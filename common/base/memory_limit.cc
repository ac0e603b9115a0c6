#include "common/base/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace weir {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// A file that is missing, cannot be read or says "max" (version 2) is no limit.
int64_t LimitIn(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  int64_t bytes = 0;
  if (file >> word && absl::SimpleAtoi(word, &bytes) && bytes > 0) {
    return bytes;
  }
  return kNoLimit;
}

// Adds `group` below `mount`, and every group above it.
void AddGroups(const std::string& mount, std::string group,
               std::vector<std::string>* directories) {
  directories->push_back(mount);
  if (absl::StrContains(group, "..")) {  // outside of what is mounted here
    return;
  }
  while (!group.empty() && group != "/") {
    directories->push_back(mount + group);
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) {
      break;
    }
    group.resize(slash);
  }
}

}  // namespace

std::vector<std::string> CgroupDirectories(const CgroupPaths& paths,
                                           absl::string_view controller) {
  std::vector<std::string> directories;
  std::ifstream membership(paths.membership);
  for (std::string line; std::getline(membership, line);) {
    // hierarchy:controllers:path; the path may have colons.
    const std::pair<absl::string_view, absl::string_view> first =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    const std::pair<absl::string_view, absl::string_view> second =
        absl::StrSplit(first.second, absl::MaxSplits(':', 1));
    const std::string group(second.second);
    if (first.first == "0" && second.first.empty()) {
      AddGroups(paths.root, group, &directories);
    }
    for (const absl::string_view one : absl::StrSplit(second.first, ',')) {
      if (one == controller) {
        AddGroups(absl::StrCat(paths.root, "/", controller), group,
                  &directories);
      }
    }
  }
  return directories;
}

int64_t CgroupMemoryBytes(const CgroupPaths& paths) {
  int64_t least = kNoLimit;
  for (const std::string& group : CgroupDirectories(paths, "memory")) {
    // Version 2, and version 1.
    least = std::min({least, LimitIn(group + "/memory.max"),
                      LimitIn(group + "/memory.limit_in_bytes")});
  }
  return least;
}

int64_t MemoryLimitBytes(const CgroupPaths& paths) {
  const int64_t machine =
      int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)};
  return std::min(machine, CgroupMemoryBytes(paths));
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");  // in pages: all, resident, ...
  int64_t all = 0;
  int64_t resident = 0;
  if (!(file >> all >> resident)) {
    return 0;
  }
  return resident * int64_t{sysconf(_SC_PAGESIZE)};
}

}  // namespace weir
