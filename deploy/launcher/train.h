// `weir train`: a whole job on this machine, from one command.
//
// It starts the real binaries on loopback ports with a TF_CONFIG each, and
// shows the progress that the chief reports. It starts dead workers again,
// stops on Ctrl-C after a checkpoint, and ends with a table and summary.json in
// the working directory.
#ifndef DEPLOY_LAUNCHER_TRAIN_H_
#define DEPLOY_LAUNCHER_TRAIN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/launcher/local_cluster.h"

namespace weir {

// `workdir` is "" for runs/<job>-<time>, or for the newest run with `resume`.
// A count of ps or workers of 0 is as many as the run had with `resume`, and 1
// without it.
struct TrainOptions : LocalClusterOptions {
  TrainOptions() {
    ps_count = 0;
    worker_count = 0;
    evaluator = true;  // when the job has an evaluation section
  }

  std::vector<std::string> sets;  // "path=value"
  int max_restarts = 20;
};

// Runs the job to its end. Returns the exit code of common/base/exit_code.h.
// Errors: what stops it before a task runs: a bad job file, a working
//   directory that holds another run, missing binaries.
absl::StatusOr<int> RunTraining(const TrainOptions& options);

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_TRAIN_H_
