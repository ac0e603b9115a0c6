// `weir run`: a user's own command as the workers of a job on this machine.
//
// It starts parameter servers and copies of the command on loopback ports, each
// with its TF_CONFIG, and shows what they print with their names before it. A
// worker that ended with 128 or above is started again. The job ends with the
// code of the first failure, and shows that task's last lines. Processes that a
// task leaves in its process group are ended with it.
#ifndef DEPLOY_LAUNCHER_RUN_H_
#define DEPLOY_LAUNCHER_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/launcher/local_cluster.h"

namespace weir {

// `workdir` is "" for no directory, but with `chief` for runs/<script>-<time>.
struct RunOptions : ClusterOptions {
  std::vector<std::string> command;           // of a worker
  std::string evaluator;                      // a command; "" for no evaluator
  std::vector<std::string> chief_flags = {};  // the chief's other flags
  int max_restarts = 3;  // of each worker, the chief and the evaluator
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
