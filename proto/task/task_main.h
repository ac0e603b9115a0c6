// What the main of every task does: flags, cluster, log, signals, exit code.
//
// Place: weir_ps, weir_chief, weir_worker and weir_evaluator are a TaskProgram
// each.
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

struct TaskProgram {
  TaskRole role;
  std::string about;  // one line for --help
  // Adds the program's own flags. --cluster and --task_index are there already,
  // but for the evaluator, which stands outside the cluster.
  std::function<void(CLI::App* app)> add_flags;
  // The task's whole work, for EndTask. `cluster` has this task, but again for
  // the evaluator.
  std::function<absl::Status(const ClusterSpec& cluster, StopSignal* stop)> run;
};

// Runs the program. Returns the exit code of common/base/exit_code.h.
int TaskMain(int argc, char** argv, const TaskProgram& program);

// Logs how a task ended and returns its exit code: CANCELLED is that of the
// signal, if one came; any other status has the code of ExitCodeFor.
int EndTask(const absl::Status& status, const StopSignal& stop);

}  // namespace weir

#endif  // PROTO_TASK_TASK_MAIN_H_
