// `weir task`: one task of a cluster, as an operator's container or step runs
// it.
//
// Place: it knows who it is by operator_identity.h, plans the role's program by
// local_cluster.h, and runs it by job_run.h with the rules of a task that is
// alone (supervisor.h).
//
// The program is started again in place on codes of 128 and more, so that a
// restart costs no scheduling, and always resumes: a chief gets --resume. What
// the program prints is printed as it is. SIGTERM and SIGINT are handed on
// once. The process reaps what its program leaves, as the first process of a
// container must. It ends with the program's last code.
#ifndef DEPLOY_LAUNCHER_TASK_H_
#define DEPLOY_LAUNCHER_TASK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/logging.h"
#include "common/job/cluster_spec.h"
#include "deploy/launcher/operator_identity.h"
#include "proto/task/admin_flags.h"

namespace weir {

struct TaskOptions {
  OperatorSources sources;
  std::string bin_dir;
  std::string job_path;  // "" with a user's program, which brings the job
  std::string workdir;
  std::string checkpoints;                        // "": in workdir
  LogOptions log = {.levels = "", .format = ""};  // as in ClusterOptions
  std::string data_dir = ".";
  std::vector<std::string> sets;
  std::string device = "auto";
  std::string device_plugin;
  std::string transport = "auto";
  bool evaluator_expected = false;        // of the chief
  bool allow_older = false;               // of the chief
  bool allow_unguarded = false;           // of the chief
  std::vector<std::string> command = {};  // a user's worker or evaluator
  // Of the program, unless that is a user's. Where nobody says a port it is
  // kAdminPort, and missing if another task of the host has it.
  AdminFlags admin = {};
  double grace_seconds = 25.0;
  int max_restarts = 20;  // in a row, without a long run between them
};

// Returns the exit code. Errors: INVALID_ARGUMENT  an option, or who it is.
absl::StatusOr<int> RunTask(const TaskOptions& options);

// OK when the task that runs here is ready: its program runs, and where its
// role has a port, that answers a call of the task's own identity.
// Errors: UNAVAILABLE  not ready; the message says what is missing.
absl::Status ProbeTask(const OperatorSources& sources);

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_TASK_H_
