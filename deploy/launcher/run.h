// `weir run`: a user's own command as the workers of a job on this machine.
//
// It starts parameter servers and copies of the command on loopback ports, each
// with its TF_CONFIG, and shows what they print with their names before it. A
// worker that a signal ended is started again. The job ends with the code of
// the first failure, and shows that task's last lines. Processes that a task
// leaves in its process group are ended with it.
#ifndef DEPLOY_LAUNCHER_RUN_H_
#define DEPLOY_LAUNCHER_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

struct RunOptions {
  std::string bin_dir;
  std::vector<std::string> command;  // of a worker
  std::string evaluator;  // a command in one string; "" for no evaluator
  // "" for no directory, but with `chief` for runs/<script>-<time>.
  std::string workdir;
  std::string transport = "auto";  // "auto", "grpc" or "shm"
  int ps_count = 1;
  int worker_count = 1;
  int max_restarts = 3;  // of each worker, the chief and the evaluator
  bool chief = false;
  bool resume = false;                        // a flag of the chief
  bool allow_older = false;                   // a flag of the chief
  std::vector<std::string> chief_flags = {};  // the chief's other flags
};

// Runs the job to its end. Returns 0 when every worker ended with 0, the code
// of the first failure (128 + signal), or 128 + the signal that ended the
// launcher.
// Errors, before a task runs:
//         INVALID_ARGUMENT  a wrong option, or a command that is not there.
//         NOT_FOUND         a program of Weir is missing.
absl::StatusOr<int> RunCommand(const RunOptions& options);

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_RUN_H_
