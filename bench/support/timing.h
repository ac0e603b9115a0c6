// Times operations of one or two processes.
#ifndef BENCH_SUPPORT_TIMING_H_
#define BENCH_SUPPORT_TIMING_H_

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "deploy/launcher/child_process.h"

namespace weir {

inline double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline double Median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half]
                                : (values[half - 1] + values[half]) / 2;
}

// User and system seconds of a process.
inline double CpuSeconds(pid_t pid) {
  if (pid == getpid()) {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec +
                                      usage.ru_stime.tv_usec);
  }
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) {
    return 0;
  }
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) {
    fields >> skipped;
  }
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// A process that dies with this object.
class Child {
 public:
  static absl::StatusOr<std::unique_ptr<Child>> Start(
      std::vector<std::string> argv, const std::string& log_path) {
    WEIR_ASSIGN_OR_RETURN(const pid_t pid,
                          StartChild({std::move(argv), {}, log_path}));
    return std::unique_ptr<Child>(new Child(pid));
  }
  ~Child() {
    kill(pid_, SIGKILL);
    Wait();
  }
  pid_t pid() const { return pid_; }
  void Wait() {
    while (!ended_ && !(ended_ = ReapChild(pid_).has_value())) {
      usleep(1000);
    }
  }

 private:
  explicit Child(pid_t pid) : pid_(pid) {}
  const pid_t pid_;
  bool ended_ = false;
};

struct Sample {
  double us = 0;            // median of one operation
  double cpu_s_per_gb = 0;  // both processes
};

// Repeats `operation` for about `seconds`.
inline absl::StatusOr<Sample> Measure(
    double seconds, pid_t ps, size_t bytes,
    const std::function<absl::Status()>& operation) {
  WEIR_RETURN_IF_ERROR(operation());  // warms up
  std::vector<double> times;
  const double cpu = CpuSeconds(getpid()) + CpuSeconds(ps);
  const double end = Now() + seconds;
  while (times.size() < 3 || Now() < end) {
    const double begin = Now();
    WEIR_RETURN_IF_ERROR(operation());
    times.push_back(Now() - begin);
  }
  const double spent = CpuSeconds(getpid()) + CpuSeconds(ps) - cpu;
  Sample sample;
  sample.us = 1e6 * Median(times);
  sample.cpu_s_per_gb =
      spent / (1e-9 * static_cast<double>(bytes * times.size()));
  return sample;
}

}  // namespace weir

#endif  // BENCH_SUPPORT_TIMING_H_
