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

namespace weir {

struct TrainOptions {
  std::string bin_dir;
  std::string job_path;
  std::vector<std::string> sets;  // "path=value"
  // "" for runs/<job>-<time>, or for the newest run with `resume`.
  std::string workdir;
  std::string data_dir = ".";
  std::string init_from;
  std::string transport = "auto";  // "auto", "grpc" or "shm"
  int channels_per_peer = 1;       // see ParameterClient
  std::string device = "auto";     // see worker/compute/factory.h
  std::string device_plugin;       // see worker/compute/factory.h
  // 0 for as many as the run had with `resume`, and for 1 without it.
  int ps_count = 0;
  int worker_count = 0;
  bool chief = false;
  bool evaluator = true;  // when the job has an evaluation section
  bool resume = false;
  bool allow_older = false;
  int max_restarts = 20;
};

// Runs the job to its end. Returns the exit code of common/base/exit_code.h.
// Errors: what stops it before a task runs: a bad job file, a working
//   directory that holds another run, missing binaries.
absl::StatusOr<int> RunTraining(const TrainOptions& options);

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_TRAIN_H_
