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
  std::vector<std::string> environment;  // "NAME=value", added to ours
  std::string log_path;                  // stdout and stderr are appended
};

// Starts `command`. Errors: NOT_FOUND names the binary; else the system's
// reason, with the log file or the binary.
absl::StatusOr<pid_t> StartChild(const ChildCommand& command);

// How a child ended: its exit code, or 128 + signal; nothing while it runs.
std::optional<int> ReapChild(pid_t pid);

// A loopback port that nobody listened on a moment ago; each call in a process
// gives another one.
absl::StatusOr<int> FreePort();

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_CHILD_PROCESS_H_
