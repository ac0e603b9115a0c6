// Decides what happens when a task of a local cluster ends.
//
// Place: the launcher's rules without I/O. deploy/launcher/job_run.cc reports
// exits, signals and time, and carries out what comes back.
//
// Terms
//   main task   the chief, or worker 0 when there is no task for the chief. The
//               job ends with it. With user_commands the job is done when all
//               workers have ended well.
//   transient   a task that ended by a signal or with a code >= 128; it may be
//               started again.
//   replaced    a task that ended with code 5: another process has its place in
//               the job.
//   grace       the time that the other tasks get to end by themselves.
//
//   alone       this supervisor has one task of a job whose others run
//               elsewhere, each below one of its own (`weir task`). That one is
//               the main task, whatever its role.
//
// Invariants
//   I1. A ps is never started again: what it held is gone. One that is alone is
//       started again, empty, and the chief restores it.
//   I2. A task is started again at most max_restarts times, after a delay that
//       doubles up to delay_max. A run of healthy_after makes the count 0.
//   I3. Once the job is ending, nothing is started again.
//   I4. No task loses another one that it may need: the ps are told to end
//       after all others, at a good end the evaluator is not told before the
//       chief is gone, and of the user's signal the chief hears first.
//   I5. When the main task ends well, the job is done and its exit code is 0,
//       whatever the other tasks ended with before.
//   I6. A replaced task does not end the others.
//
// Threads: compatible.
#ifndef DEPLOY_LAUNCHER_SUPERVISOR_H_
#define DEPLOY_LAUNCHER_SUPERVISOR_H_

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace weir {

struct LocalTask {
  std::string role;  // "ps", "chief", "worker", "evaluator"
  int index = 0;
  int restarts = 0;
  bool running = false;
  bool told_to_stop = false;  // TakeStops has named it
  int exit_code = -1;         // of the last run; -1 before its first end
  int64_t started_ns = 0;     // the last run
  int64_t start_at_ns = 0;    // the next start is due then; -1 for no start

  std::string name() const { return role + "/" + std::to_string(index); }
};

class Supervisor {
 public:
  struct Options {
    int max_restarts = 20;  // per task
    bool alone = false;
    // A run as long as this was no failed start; 0: none is long enough.
    std::chrono::nanoseconds healthy_after{0};
    // Before the first start of a task again, and at most before a later one.
    std::chrono::nanoseconds first_delay = std::chrono::milliseconds(100);
    std::chrono::nanoseconds delay_max = std::chrono::seconds(2);
    // Grace after a good end of the job.
    std::chrono::nanoseconds finish_grace = std::chrono::seconds(5);
    // Grace after a transient failure. The others notice a lost ps within 15 s.
    std::chrono::nanoseconds failure_grace = std::chrono::seconds(20);
    // Grace after a permanent failure, and for a ps once all others are gone:
    // what still runs can only wait. Without user_commands that ps may be about
    // to hear the chief's word to end.
    std::chrono::nanoseconds permanent_grace = std::chrono::seconds(2);
    // Grace after Ctrl-C, in which a checkpoint has to be written.
    std::chrono::nanoseconds interrupt_grace = std::chrono::seconds(60);
    // Between SIGTERM and SIGKILL.
    std::chrono::nanoseconds kill_grace = std::chrono::seconds(5);
    // The workers are the user's programs, which know no chief that ends them;
    // a lost ps then ends the job with that ps's code.
    bool user_commands = false;
    // The chief's grace after a good end of the workers, and its time between
    // SIGTERM and SIGKILL. It may write a checkpoint in either.
    std::chrono::nanoseconds chief_grace = std::chrono::seconds(60);
    std::chrono::nanoseconds chief_kill_grace = std::chrono::seconds(20);
  };

  // What to send to the tasks that still run.
  enum class Pressure { kNone, kTerminate, kKill };

  Supervisor(Options options, std::vector<LocalTask> tasks);

  const std::vector<LocalTask>& tasks() const { return tasks_; }
  // Returns the tasks to start now, by index into tasks(). Marks them as
  // running.
  std::vector<int> TakeStarts(int64_t now_ns);
  // Notes that tasks()[task] ended with `code`; 128 + signal for a signal.
  void OnExit(int task, int code, int64_t now_ns);
  // Notes that the user wants the job to end, by Ctrl-C for example. The first
  // time the job begins to end and the launcher will exit with `code`; the
  // second time every task is to be killed at once. A task that is alone gets
  // interrupt_grace however often it is asked to end, because operators send
  // SIGTERM more than once; its own code is the launcher's.
  void OnInterrupt(int64_t now_ns, int code);
  // Returns the tasks that are to get the user's signal now, by index into
  // tasks(), each once: whoever hosts the chief, who writes a checkpoint and
  // stops the workers; the workers once that one is gone.
  std::vector<int> TakeStops();
  // Returns what to send to tasks()[task], which runs.
  Pressure PressureOn(int task, int64_t now_ns) const;

  bool ending() const { return ending_; }
  // Nothing runs and nothing will be started.
  bool finished() const;
  // The launcher's exit code. REQUIRES: ending().
  int exit_code() const { return exit_code_; }
  // What the user can do now, or should know; "" when there is nothing to say.
  const std::string& advice() const { return advice_; }
  // The task whose failure ended the job, by index; -1: none did.
  int failed_task() const { return failed_task_; }

 private:
  bool IsMain(const LocalTask& task) const;
  bool HostsChief(const LocalTask& task) const;
  bool Runs(const char* role) const;
  bool AllWorkersAreDone() const;
  // Returns whether the task ended as replaced. The 5 of a user's program is
  // that program's own code and means nothing here.
  bool IsReplaced(const LocalTask& task) const;
  // Ends the job once no chief and no worker is left here and the main task was
  // replaced: then the job goes on elsewhere.
  void EndIfNobodyIsLeft(int64_t now_ns);
  // Does OnExit's work while the job is ending.
  void OnLateExit(int task, int64_t now_ns);
  void Fail(int task, int code, std::chrono::nanoseconds grace, int64_t now_ns,
            std::string advice = "");
  void End(int code, std::chrono::nanoseconds grace, int64_t now_ns,
           std::string advice = "");
  // Moves the time of SIGTERM forward, in the order of I4, if only tasks are
  // left that end when they are told to, and not by themselves.
  void Hurry(int64_t now_ns);
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
  std::string advice_;
  int64_t terminate_at_ns_ = 0;
  // The ps have a time of their own, and after a good end so has the chief.
  int64_t terminate_ps_at_ns_ = std::numeric_limits<int64_t>::max();
  int64_t terminate_chief_at_ns_ = std::numeric_limits<int64_t>::max();
};

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_SUPERVISOR_H_
