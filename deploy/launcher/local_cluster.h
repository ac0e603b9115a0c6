// The tasks of a job on this machine: who runs, where, with which command line.
//
// Place: between the launcher's flags and its processes. It plans and starts
// nothing.
#ifndef DEPLOY_LAUNCHER_LOCAL_CLUSTER_H_
#define DEPLOY_LAUNCHER_LOCAL_CLUSTER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/logging.h"
#include "common/job/cluster_spec.h"
#include "deploy/launcher/child_process.h"
#include "deploy/launcher/supervisor.h"
#include "proto/security/security.h"
#include "proto/task/admin_flags.h"

namespace weir {

// What every cluster has.
struct ClusterOptions {
  std::string bin_dir;  // holds server/ps/weir_ps, worker/weir_worker, ...
  std::string workdir;  // checkpoints, curves, logs; "" for none, and no logs
  // Where checkpoints, curves and DONE go, if not to workdir: a URL.
  std::string checkpoints;
  int ps_count = 1;
  int worker_count = 1;
  bool chief = false;              // a task of its own
  bool resume = false;             // a flag of the chief
  bool allow_older = false;        // a flag of the chief
  bool allow_unguarded = false;    // a flag of the chief
  std::string transport = "auto";  // of the workers: "auto", "grpc" or "shm"
  AdminFlags admin = {};           // of the chief, or of the single task
  // How the tasks prove who they are. With tls_dir a task takes the directory
  // <role>-<index> in it, if there is one. If no mode is chosen the job gets a
  // secret of its own.
  Security::Options security;
  // What the tasks log; a text that is "" is that of the launcher's own
  // environment.
  LogOptions log = {.levels = "", .format = ""};
};

// The options of `weir train`, where Weir's worker trains a job file. Without a
// task for the chief worker 0 hosts it.
struct LocalClusterOptions : ClusterOptions {
  std::string job_path;  // the job file that every task reads
  std::string data_dir = ".";
  bool evaluator = false;
  std::string init_from;
  int channels_per_peer = 0;    // of the workers; see ParameterClient
  std::string device = "auto";  // of workers and evaluator
  std::string device_plugin;    // of both; see worker/compute/factory.h
};

// The options of `weir run`, where a user's command is the worker.
struct CommandClusterOptions : ClusterOptions {
  std::vector<std::string> worker = {};       // argv; argv[0] is the path
  std::vector<std::string> evaluator = {};    // argv; empty for no evaluator
  std::vector<std::string> chief_flags = {};  // the chief's other flags
};

// The options of `weir task`, which runs one task of a cluster whose others run
// elsewhere. What the launcher chooses for a whole cluster is the operator's
// here: addresses, counts and the proof of identity come by variables.
struct SingleTaskOptions : LocalClusterOptions {
  TaskId task;
  std::vector<std::string> sets;     // --set, of all programs with a job file
  std::vector<std::string> command;  // a user's worker or evaluator; argv
  double grace_seconds = 25.0;       // of a ps
  // WEIR_CLUSTER for the program; "" where it has one of its operator.
  std::string cluster_text;
};

struct LocalCluster {
  // As ClusterOptions says, with the secret if one was drawn.
  Security::Options security;
  std::vector<LocalTask> tasks;
  std::vector<ChildCommand> commands;  // commands[i] starts tasks[i]
  std::string cluster_json;            // as KeepCluster keeps it
  std::string chief_address;  // worker 0's when there is no task for the chief
};

// The security of a task, of one for all.
Security::Options SecurityOf(Security::Options all, const std::string& role,
                             int index);

// Picks free loopback ports and writes every task's TF_CONFIG.
// Errors: UNAVAILABLE when no port is free.
absl::StatusOr<LocalCluster> PlanLocalCluster(
    const LocalClusterOptions& options);
// Does the same for a user's command. Workers and the evaluator also get
// WEIR_TRANSPORT, WEIR_WORKDIR if there is such, and WEIR_CHECKPOINTS, which is
// empty if checkpoints are in the working directory.
absl::StatusOr<LocalCluster> PlanCommandCluster(
    const CommandClusterOptions& options);
// Plans the one task of `weir task`. REQUIRES: options.chief says whether the
// cluster has a chief; a task of the roles ps and chief has no `command`.
LocalCluster PlanSingleTask(const SingleTaskOptions& options);

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_LOCAL_CLUSTER_H_
