// What the main of every task does: flags, cluster, proof of identity, log,
// signals, admin port, exit code.
//
// Place: weir_ps, weir_chief, weir_worker and weir_evaluator call it.
//
// SIGTERM and SIGINT ask a task to stop in its own time, which it hears from
// its StopSignal. A second signal ends the process at once, unless
// WEIR_STOPS_ONCE is set, as `weir task` does.
//
// A task that holds a secret or a key leaves no core dump, and no other process
// of its user may look into it.
#ifndef PROTO_TASK_TASK_MAIN_H_
#define PROTO_TASK_TASK_MAIN_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/base/stop_signal.h"
#include "common/job/cluster_spec.h"
#include "common/metrics/host_usage.h"
#include "proto/admin/admin_server.h"
#include "proto/security/access_control.h"
#include "proto/security/security.h"

namespace CLI {
class App;
}  // namespace CLI

namespace weir {

// What a task is given to work with.
struct Task {
  ClusterSpec cluster;
  // How it proves who it is. The evaluator calls nobody, and has the insecure
  // one.
  std::shared_ptr<const Security> security;
  StopSignal* stop = nullptr;
  const HostMeter* host = nullptr;  // never null
  // Where the task shows what it does; null where nobody asked for it. It ends
  // after the task, so the task takes back what it gave (AdminScope).
  AdminServer* admin = nullptr;
};

// The role in the identity of a task; an evaluator only reads.
PeerRole PeerRoleOf(TaskRole role);

// How a server of this task decides who may call it.
AccessControl::Options AccessOptions(const Task& task);

namespace internal {
int TaskMain(int argc, char** argv, TaskRole role, const std::string& about,
             const std::function<void(CLI::App*)>& add_flags,
             const std::function<absl::Status(const Task&)>& run);
}  // namespace internal

// Runs a task whose flags are `Flags`, and returns its exit code of
// common/base/exit_code.h.
//   about      one line for --help.
//   add_flags  adds the program's own flags. Those of the log and of the admin
//              port are there already, and --cluster, --task_index and those of
//              security (security.h), but for the evaluator, which stands
//              outside the cluster.
//   run        does the task's whole work; EndTask gets what it returns. The
//              cluster has this task, but again for the evaluator.
template <typename Flags>
int TaskMain(int argc, char** argv, TaskRole role, const std::string& about,
             void (*add_flags)(CLI::App*, Flags*),
             absl::Status (*run)(const Flags&, const Task&)) {
  Flags flags;
  return internal::TaskMain(
      argc, argv, role, about, [&](CLI::App* app) { add_flags(app, &flags); },
      [&](const Task& task) { return run(flags, task); });
}

// Logs how a task ended and returns its exit code: CANCELLED is that of the
// signal, if one came; any other status has the code of ExitCodeFor.
int EndTask(const absl::Status& status, const StopSignal& stop);

}  // namespace weir

#endif  // PROTO_TASK_TASK_MAIN_H_
