// Child processes of the launcher: start, watch, signal, reap.
//
// A child runs in a process group of its own, so that Ctrl-C in the terminal
// reaches the launcher alone, and dies with the launcher whatever happens. The
// kernel ties its life to the thread that started it: that thread must outlive
// the child.
//
// Threads: compatible.
#ifndef DEPLOY_LAUNCHER_CHILD_PROCESS_H_
#define DEPLOY_LAUNCHER_CHILD_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

struct ChildCommand {
  std::vector<std::string> argv;         // argv[0] is the path
  std::vector<std::string> environment;  // "NAME=value", replaces ours
  std::string log_path;                  // stdout and stderr are appended
  // If both are >= 0, the child writes to them and log_path is not used. The
  // caller owns them and may close them once StartChild has returned.
  int stdout_fd = -1;
  int stderr_fd = -1;
};

// Starts `command` and returns once the child runs it, in its own group.
// Errors: NOT_FOUND         the binary is not there or not executable.
//         INVALID_ARGUMENT  the system cannot run the file.
//         the system's reason, with the log file or the binary, in other cases.
absl::StatusOr<pid_t> StartChild(const ChildCommand& command);

// Returns how a child ended: its exit code, or 128 + signal. Returns nothing
// while it runs. After the end the pid is free for another process.
std::optional<int> ReapChild(pid_t pid);
// Returns the same without reaping: the pid, and so the process group, stays
// the child's until ReapChild, and what it left in its group can be signalled.
std::optional<int> ChildEnd(pid_t pid);

// Returns a loopback port that nobody listened on a moment ago. Each call in a
// process returns another one, until it begins again after 22,000 ports.
// Errors: UNAVAILABLE when every port is taken.
absl::StatusOr<int> FreePort();

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_CHILD_PROCESS_H_
