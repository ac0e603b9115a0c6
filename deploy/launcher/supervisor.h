// Decides what happens when a task of a local cluster ends.
//
// Place: the launcher's rules without I/O. deploy/launcher/train.cc and run.cc
// report exits and time, and carry out what comes back.
//
// Terms
//   main task   the chief, or worker 0 when no chief runs: its end is the
//               job's. With user_commands the workers are: the job is over when
//               all of them ended well.
//   transient   ended by a signal or with a code >= 128: may be started again.
//   replaced    ended with 5: another process has its place in the job.
//   grace       time that the other tasks get to end by themselves.
//
// Invariants
//   I1. A ps is never started again: what it held is gone.
//   I2. A task is started again at most max_restarts times, each time later.
//   I3. Once the job is ending, nothing is started again.
//   I4. With user_commands nobody loses a task that it may need: the ps are
//       told to end after all others, the evaluator not before the chief is
//       gone.
//   I5. When the main task ends well the job is done, and the end a good one,
//       whatever the other tasks ended with before.
//   I6. A replaced task ends nobody else.
// Threads: compatible.
#ifndef DEPLOY_LAUNCHER_SUPERVISOR_H_
#define DEPLOY_LAUNCHER_SUPERVISOR_H_

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/base/exit_code.h"

namespace weir {

struct LocalTask {
  std::string role;  // "ps", "chief", "worker", "evaluator"
  int index = 0;
  int restarts = 0;
  bool running = false;
  int exit_code = -1;  // of the last run; -1: never ended
  int64_t start_at_ns = 0;

  std::string name() const { return role + "/" + std::to_string(index); }
};

class Supervisor {
 public:
  struct Options {
    int max_restarts = 20;  // per task
    std::chrono::nanoseconds first_delay = std::chrono::milliseconds(100);
    std::chrono::nanoseconds delay_max = std::chrono::seconds(2);
    // After the main task ended well.
    std::chrono::nanoseconds finish_grace = std::chrono::seconds(5);
    // After a transient failure: the others notice a lost ps within 15 s.
    std::chrono::nanoseconds failure_grace = std::chrono::seconds(20);
    // After a permanent failure, and for a ps once chief and workers are gone:
    // what still runs can only wait.
    std::chrono::nanoseconds permanent_grace = std::chrono::seconds(2);
    // After Ctrl-C: a checkpoint has to be written.
    std::chrono::nanoseconds interrupt_grace = std::chrono::seconds(60);
    // Between SIGTERM and SIGKILL.
    std::chrono::nanoseconds kill_grace = std::chrono::seconds(5);
    // The workers are the user's programs, which know no chief that ends them;
    // a lost ps then ends the job with that ps's code.
    bool user_commands = false;
    // With it: for the chief, once all workers ended well, to write its last
    // checkpoint; and between SIGTERM and SIGKILL, to write one.
    std::chrono::nanoseconds chief_grace = std::chrono::seconds(60);
    std::chrono::nanoseconds chief_kill_grace = std::chrono::seconds(20);
  };

  // What to send to the tasks that still run.
  enum class Pressure { kNone, kTerminate, kKill };

  Supervisor(Options options, std::vector<LocalTask> tasks);

  const std::vector<LocalTask>& tasks() const { return tasks_; }
  // Tasks to start now, by index into tasks(). Marks them as running.
  std::vector<int> TakeStarts(int64_t now_ns);
  // Task `task` ended with `code` (128 + signal for a signal).
  void OnExit(int task, int code, int64_t now_ns);
  // The user pressed Ctrl-C; the second time kills. `code`: what the launcher
  // then ends with.
  void OnInterrupt(int64_t now_ns, int code = kExitInterrupted);
  // For every task; REQUIRES: no user_commands.
  Pressure PressureAt(int64_t now_ns) const;
  // For tasks()[task].
  Pressure PressureOn(int task, int64_t now_ns) const;

  bool ending() const { return ending_; }
  // Nothing runs and nothing will be started.
  bool finished() const;
  // The launcher's exit code. REQUIRES: ending().
  int exit_code() const { return exit_code_; }
  // One line: why the job ended; empty when it ended well.
  const std::string& reason() const { return reason_; }
  // The task whose failure ended the job, by index; -1: none did.
  int failed_task() const { return failed_task_; }

 private:
  bool IsMain(const LocalTask& task) const;
  bool Runs(const char* role) const;
  bool AllWorkersAreDone() const;
  // The code is Weir's, not that of a user's program.
  bool IsReplaced(const LocalTask& task) const;
  // The job goes on elsewhere once no chief and no worker is left here.
  void EndIfNobodyIsLeft(int64_t now_ns);
  // OnExit while the job is ending.
  void OnLateExit(int task, int64_t now_ns);
  void Fail(int task, int code, std::string reason,
            std::chrono::nanoseconds grace, int64_t now_ns);
  void End(int code, std::string reason, std::chrono::nanoseconds grace,
           int64_t now_ns);
  // Waits no longer than needed for tasks that end only when they are told to.
  void HurryServers(int64_t now_ns);
  // With user_commands: the same, in the order of I4.
  void HurryInOrder(int64_t now_ns);
  int64_t TerminateAtNs(const LocalTask& task) const;
  Pressure PressureSince(int64_t terminate_at_ns,
                         std::chrono::nanoseconds kill_grace,
                         int64_t now_ns) const;

  const Options options_;
  std::vector<LocalTask> tasks_;
  std::string main_role_;
  bool ending_ = false;
  bool interrupted_ = false;
  bool killing_ = false;  // interrupted twice
  int exit_code_ = 0;
  int failed_task_ = -1;
  std::string reason_;
  int64_t terminate_at_ns_ = 0;
  // With user_commands, of the ps and of the chief after a good end.
  int64_t terminate_ps_at_ns_ = std::numeric_limits<int64_t>::max();
  int64_t terminate_chief_at_ns_ = std::numeric_limits<int64_t>::max();
};

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_SUPERVISOR_H_
