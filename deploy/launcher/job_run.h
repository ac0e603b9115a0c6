// The launcher's loop: starts, watches, signals and reaps the tasks of a job on
// this machine. `weir train` and `weir run` differ in the tasks that they plan
// and in what they show.
//
// Place: between a plan (local_cluster.h) with its rules (supervisor.h) and the
// processes.
//
// What tasks print goes to their logs, and with show_output to the terminal,
// with the task's name before each line. Processes that a task leaves in its
// process group are ended with it. The first SIGINT, SIGTERM or, unless it is
// ignored, SIGHUP is handed on to the tasks as the supervisor says; the second
// one kills them.
//
// Threads: compatible. No other thread may exist that leaves these signals
// unblocked.
#ifndef DEPLOY_LAUNCHER_JOB_RUN_H_
#define DEPLOY_LAUNCHER_JOB_RUN_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/stop_signal.h"
#include "deploy/launcher/local_cluster.h"
#include "deploy/launcher/output_forwarder.h"
#include "deploy/launcher/supervisor.h"

namespace weir {

class JobRun {
 public:
  struct Options {
    std::string program;  // begins the launcher's own lines: "weir run"
    Supervisor::Options rules;
    bool show_output = true;
    // Tasks write to this process's own stdout and stderr, as they are: no
    // names before lines, no logs, and no last lines for Explain.
    bool pass_output = false;
    // Processes whose parents have ended come to this one, and are reaped: what
    // the first process of a container has to do.
    bool reap_orphans = false;
    // Shows one line to the user. By default it goes to stderr, behind all that
    // tasks have printed by then.
    std::function<void(const std::string& line)> note = {};
    // Called again and again until the job begins to end.
    std::function<void(int64_t now_ns)> on_poll = {};
  };

  // From here on until Run has returned the signals are caught.
  // Errors: the system's.
  static absl::StatusOr<std::unique_ptr<JobRun>> Create(LocalCluster plan,
                                                        Options options);
  ~JobRun() { EndLeftovers(); }

  // Returns when nothing runs any more. A task that cannot be started again has
  // ended with kExitRetry, for the supervisor.
  // Errors: a task cannot be started for the first time.
  absl::Status Run();
  // Tells the tasks to end, as a signal of the user would. For on_poll.
  void Stop(int code);
  // Prints on stderr what ended the job, and the last lines of that task.
  void Explain();
  int exit_code() const { return supervisor_.exit_code(); }
  const std::vector<LocalTask>& tasks() const { return supervisor_.tasks(); }

 private:
  struct TaskProcess {
    pid_t pid = 0;
    int64_t start_ns = 0;
    double ran_seconds = 0;
    Supervisor::Pressure pressed = Supervisor::Pressure::kNone;
    // Its last end was a failure, and nobody had told it to end.
    bool failed_by_itself = false;
  };

  JobRun(LocalCluster plan, Options options);

  absl::Status Start(int task, int64_t now_ns);
  absl::Status StartDue(int64_t now_ns);
  void CollectEnds(int64_t now_ns);
  void ReportEnd(int task);
  void HandleSignals(int64_t now_ns);
  // Signals each task as hard as the supervisor says.
  void Press(int64_t now_ns);
  // Kills what tasks left in their process groups, and reaps the tasks.
  void EndLeftovers();
  void ReapOrphans();
  std::string FailureText(int task) const;

  const LocalCluster plan_;
  Options options_;
  Supervisor supervisor_;
  std::unique_ptr<StopSignal> signals_;
  std::unique_ptr<OutputForwarder> forwarder_;
  std::vector<TaskProcess> processes_;  // by task
  std::vector<pid_t> ended_;            // leaders of groups, not yet reaped
  int handled_signals_ = 0;
};

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_JOB_RUN_H_
