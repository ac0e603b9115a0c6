// weir run: a user's own command as the workers of a job on this machine.
//
// Starts parameter servers and copies of the command on loopback ports, each
// with its TF_CONFIG, shows what they print with their names before it, starts
// workers that a signal ended again, and ends with the first failure's code and
// last lines. What a task leaves in its process group ends with it.
#ifndef DEPLOY_LAUNCHER_RUN_H_
#define DEPLOY_LAUNCHER_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

struct RunOptions {
  std::string bin_dir;
  std::vector<std::string> command;  // of a worker
  std::string evaluator;             // a command in one string; "": none
  std::string workdir;  // "": none; with `chief` runs/<script>-<time>
  std::string transport = "auto";  // "auto", "grpc" or "shm"
  int ps_count = 1;
  int worker_count = 1;
  int max_restarts = 3;  // of each worker, the chief and the evaluator
  bool chief = false;
  bool resume = false;                        // of the chief
  bool allow_older = false;                   // likewise
  std::vector<std::string> chief_flags = {};  // more of them
};

// Runs the job to its end. Returns 0 when every worker ended with 0, the code
// of the first failure (128 + signal), or 128 + the signal that ended the
// launcher.
// Errors: what stops it before a task runs: INVALID_ARGUMENT for a wrong
//   option or a command that is not there, NOT_FOUND for missing binaries.
absl::StatusOr<int> RunCommand(const RunOptions& options);

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_RUN_H_
