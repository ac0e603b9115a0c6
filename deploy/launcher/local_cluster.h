// The tasks of a job on this machine: who runs, where, with which command line.
//
// Place: between the launcher's flags and its processes; starts nothing.
#ifndef DEPLOY_LAUNCHER_LOCAL_CLUSTER_H_
#define DEPLOY_LAUNCHER_LOCAL_CLUSTER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/launcher/child_process.h"
#include "deploy/launcher/supervisor.h"

namespace weir {

struct LocalClusterOptions {
  std::string bin_dir;   // holds server/ps/weir_ps, worker/weir_worker, ...
  std::string job_path;  // the job file that every task reads
  std::string workdir;   // checkpoints, curves, logs
  std::string data_dir;
  int ps_count = 1;
  int worker_count = 1;
  bool chief = false;  // a task of its own; else worker 0 hosts it
  bool evaluator = false;
  bool resume = false;
  bool allow_older = false;
  std::string init_from;
  std::string transport = "auto";  // of the workers; see client/cc
  int channels_per_peer = 1;       // likewise
  std::string device = "auto";     // of workers and evaluator
  std::string device_plugin;       // likewise; see worker/compute/factory.h
};

// The same, for a user's command as the worker: weir run.
struct CommandClusterOptions {
  std::string bin_dir;
  std::vector<std::string> worker;     // argv; argv[0] is the path
  std::vector<std::string> evaluator;  // likewise; empty: none
  std::string workdir;                 // "": none, and no logs
  int ps_count = 1;
  int worker_count = 1;
  bool chief = false;
  bool resume = false;                        // of the chief
  bool allow_older = false;                   // likewise
  std::vector<std::string> chief_flags = {};  // more of them
  std::string transport = "auto";
};

struct LocalCluster {
  std::vector<LocalTask> tasks;
  std::vector<ChildCommand> commands;  // by task
  std::string chief_address;           // worker 0's when no chief runs
};

// Picks free loopback ports and writes every task's TF_CONFIG.
// Errors: UNAVAILABLE when no port is free.
absl::StatusOr<LocalCluster> PlanLocalCluster(
    const LocalClusterOptions& options);
// Commands also get WEIR_TRANSPORT and, where there is one, WEIR_WORKDIR.
absl::StatusOr<LocalCluster> PlanCommandCluster(
    const CommandClusterOptions& options);

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_LOCAL_CLUSTER_H_
