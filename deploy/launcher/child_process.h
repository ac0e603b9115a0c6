// Child processes of the launcher: start, watch, signal, reap.
//
// A child runs in a process group of its own, so that Ctrl-C in the terminal
// reaches the launcher alone, and dies with the launcher whatever happens.
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
  std::vector<std::string> environment;  // "NAME=value", laid over ours
  std::string log_path;                  // stdout and stderr are appended
  // In place of log_path, if both are there; the caller's, who may close them
  // once the child is started.
  int stdout_fd = -1;
  int stderr_fd = -1;
};

// Starts `command`; when it returns, the child runs it. Errors: NOT_FOUND names
// the binary, INVALID_ARGUMENT a file that the system cannot run; else the
// system's reason, with the log file or the binary.
absl::StatusOr<pid_t> StartChild(const ChildCommand& command);

// How a child ended: its exit code, or 128 + signal; nothing while it runs.
std::optional<int> ReapChild(pid_t pid);
// The same, but nobody else gets the pid, and so the process group, before
// ReapChild: what the child has left in its group can be signalled.
std::optional<int> ChildEnd(pid_t pid);

// A loopback port that nobody listened on a moment ago; each call in a process
// gives another one.
absl::StatusOr<int> FreePort();

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_CHILD_PROCESS_H_
