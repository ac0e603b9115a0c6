// Decides what happens when a task of a local cluster ends.
//
// Place: the launcher's rules without I/O. deploy/launcher/train.cc reports
// exits and time, and carries out what comes back.
//
// Terms
//   main task   the chief, or worker 0 when no chief runs: its end is the
//   job's. transient   ended by a signal or with a code >= 128: may be started
//   again. grace       time that the other tasks get to end by themselves.
//
// Invariants
//   I1. A ps is never started again: what it held is gone.
//   I2. A task is started again at most max_restarts times, each time later.
//   I3. Once the job is ending, nothing is started again.
// Threads: compatible.
#ifndef DEPLOY_LAUNCHER_SUPERVISOR_H_
#define DEPLOY_LAUNCHER_SUPERVISOR_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

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
  };

  // What to send to the tasks that still run.
  enum class Pressure { kNone, kTerminate, kKill };

  Supervisor(Options options, std::vector<LocalTask> tasks);

  const std::vector<LocalTask>& tasks() const { return tasks_; }
  // Tasks to start now, by index into tasks(). Marks them as running.
  std::vector<int> TakeStarts(int64_t now_ns);
  // Task `task` ended with `code` (128 + signal for a signal).
  void OnExit(int task, int code, int64_t now_ns);
  // The user pressed Ctrl-C; the second time kills.
  void OnInterrupt(int64_t now_ns);
  Pressure PressureAt(int64_t now_ns) const;

  bool ending() const { return ending_; }
  // Nothing runs and nothing will be started.
  bool finished() const;
  // The launcher's exit code. REQUIRES: ending().
  int exit_code() const { return exit_code_; }
  // One line: why the job ended; empty when it ended well.
  const std::string& reason() const { return reason_; }

 private:
  bool IsMain(const LocalTask& task) const;
  void End(int code, std::string reason, std::chrono::nanoseconds grace,
           int64_t now_ns);
  // Waits no longer than needed for tasks that end only when they are told to.
  void HurryServers(int64_t now_ns);

  const Options options_;
  std::vector<LocalTask> tasks_;
  std::string main_role_;
  bool ending_ = false;
  bool interrupted_ = false;
  int exit_code_ = 0;
  std::string reason_;
  int64_t terminate_at_ns_ = 0;
};

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_SUPERVISOR_H_
