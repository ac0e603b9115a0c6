#include "proto/admin/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/memory_limit.h"
#include "common/base/version_text.h"

namespace weir {
namespace {

// Fields of /proc/self/stat behind the program's name, which may hold blanks
// and brackets. The first one is the third of proc(5).
constexpr int kUserTime = 14 - 3;
constexpr int kSystemTime = 15 - 3;
constexpr int kStartTime = 22 - 3;
constexpr int kVirtualBytes = 23 - 3;
constexpr int kResidentPages = 24 - 3;

std::string ReadText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<double> ReadStat() {
  const std::string text = ReadText("/proc/self/stat");
  std::vector<double> fields;
  for (const absl::string_view word : absl::StrSplit(
           text.substr(text.rfind(')') + 1), ' ', absl::SkipEmpty())) {
    double value = 0;
    fields.push_back(absl::SimpleAtod(word, &value) ? value : 0);
  }
  return fields;
}

// When the system started, in seconds since 1970.
std::optional<double> BootTime() {
  for (const absl::string_view line :
       absl::StrSplit(ReadText("/proc/stat"), '\n')) {
    double seconds = 0;
    if (absl::StartsWith(line, "btime ") &&
        absl::SimpleAtod(line.substr(6), &seconds)) {
      return seconds;
    }
  }
  return std::nullopt;
}

std::optional<int> OpenDescriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) {
    return std::nullopt;
  }
  int count = 0;
  // This thread alone has `folder`.
  while (const dirent* entry = readdir(folder)) {  // NOLINT
    count += entry->d_name[0] == '.' ? 0 : 1;
  }
  closedir(folder);
  return count - 1;  // without the one that lists them
}

}  // namespace

void AddTaskMetrics(const TaskInfo& task, MetricPage* page) {
  page->AddGauge("weir_build_info", "The version of Weir that runs here.",
                 {{"version", kVersionText}}, 1);
  page->AddGauge("weir_task_info", "Which task of its job this is.",
                 {{"role", task.role},
                  {"index", absl::StrCat(task.index)},
                  {"host", task.host}},
                 1);
}

void AddProcessMetrics(MetricPage* page) {
  const std::vector<double> stat = ReadStat();
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  if (stat.size() > kResidentPages) {
    page->AddCounter("process_cpu_seconds_total",
                     "Processor time of this process, in user and kernel mode.",
                     {}, (stat[kUserTime] + stat[kSystemTime]) / ticks);
    page->AddGauge(
        "process_resident_memory_bytes",
        "Memory of this process that is in RAM.", {},
        stat[kResidentPages] * static_cast<double>(sysconf(_SC_PAGESIZE)));
    page->AddGauge("process_virtual_memory_bytes",
                   "Address space of this process.", {}, stat[kVirtualBytes]);
    if (const auto boot = BootTime(); boot.has_value()) {
      page->AddGauge("process_start_time_seconds",
                     "When this process began, in seconds since 1970.", {},
                     *boot + stat[kStartTime] / ticks);
    }
  }
  page->AddGauge("weir_task_memory_limit_bytes",
                 "Memory that this process may use, by its control groups and "
                 "the RAM of the machine.",
                 {}, static_cast<double>(MemoryLimitBytes()));
  if (const auto open = OpenDescriptors(); open.has_value()) {
    page->AddGauge("process_open_fds", "Descriptors that are open.", {}, *open);
  }
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    page->AddGauge("process_max_fds", "Descriptors that may be open.", {},
                   static_cast<double>(limit.rlim_cur));
  }
}

}  // namespace weir
