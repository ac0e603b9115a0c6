// What the main of every task does: flags, cluster, log, signals, exit code.
//
// Place: weir_ps, weir_chief, weir_worker and weir_evaluator call it.
//
// SIGTERM and SIGINT ask a task to stop in its own time, which it hears from
// its StopSignal. A second signal ends the process at once.
#ifndef PROTO_TASK_TASK_MAIN_H_
#define PROTO_TASK_TASK_MAIN_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/base/stop_signal.h"
#include "common/job/cluster_spec.h"

namespace CLI {
class App;
}  // namespace CLI

namespace weir {

namespace internal {
int TaskMain(
    int argc, char** argv, TaskRole role, const std::string& about,
    const std::function<void(CLI::App*)>& add_flags,
    const std::function<absl::Status(const ClusterSpec&, StopSignal*)>& run);
}  // namespace internal

// Runs a task whose flags are `Flags`, and returns its exit code of
// common/base/exit_code.h.
//   about      one line for --help.
//   add_flags  adds the program's own flags. --cluster and --task_index are
//              there already, but for the evaluator, which stands outside the
//              cluster.
//   run        does the task's whole work; EndTask gets what it returns. The
//              cluster has this task, but again for the evaluator.
template <typename Flags>
int TaskMain(int argc, char** argv, TaskRole role, const std::string& about,
             void (*add_flags)(CLI::App*, Flags*),
             absl::Status (*run)(const Flags&, const ClusterSpec&,
                                 StopSignal*)) {
  Flags flags;
  return internal::TaskMain(
      argc, argv, role, about, [&](CLI::App* app) { add_flags(app, &flags); },
      [&](const ClusterSpec& cluster, StopSignal* stop) {
        return run(flags, cluster, stop);
      });
}

// Logs how a task ended and returns its exit code: CANCELLED is that of the
// signal, if one came; any other status has the code of ExitCodeFor.
int EndTask(const absl::Status& status, const StopSignal& stop);

}  // namespace weir

#endif  // PROTO_TASK_TASK_MAIN_H_
