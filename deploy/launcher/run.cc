#include "deploy/launcher/run.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "deploy/launcher/child_process.h"
#include "deploy/launcher/local_cluster.h"
#include "deploy/launcher/output_forwarder.h"
#include "deploy/launcher/supervisor.h"
#include "deploy/launcher/user_command.h"
#include "deploy/launcher/workdir.h"

namespace weir {
namespace {

using Pressure = Supervisor::Pressure;

constexpr auto kPollEvery = std::chrono::milliseconds(50);
// Without a chief nobody has to write a checkpoint before the end, so workers
// get less time than Supervisor's default.
constexpr auto kWorkerInterruptGrace = std::chrono::seconds(10);
// The time in which helpers of a task may see that it is gone and end, all
// tasks' helpers together.
constexpr auto kLeftoverGrace = std::chrono::milliseconds(500);
// Whoever wrote to a pipe is gone by then, except for a daemon that left its
// process group and keeps the pipe open: nobody waits for that.
constexpr auto kOutputPatience = std::chrono::milliseconds(500);

// Set by the signal handler; the loop reads them.
volatile sig_atomic_t interrupts = 0;
volatile sig_atomic_t first_signal = 0;

void NoteSignal(int signal) {
  if (interrupts == 0) {
    first_signal = signal;
  }
  interrupts = interrupts + 1;
}

// Catches what ends a job in order. A terminal that is closed (SIGHUP) does so,
// too, unless nohup made the launcher ignore it.
void CatchSignals() {
  struct sigaction action = {};
  action.sa_handler = NoteSignal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGCHLD, SIG_DFL);  // ends are waited for, whatever was inherited
  struct sigaction before = {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) {
    sigaction(SIGHUP, &action, nullptr);
  }
}

// The job is over: Ctrl-C only stops the last output from being shown.
void ReleaseSignals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    signal(number, SIG_DFL);
  }
  signal(SIGPIPE, SIG_IGN);  // the exit code still says how the job ended
}

std::string CodeText(int code) {
  // Linux has 64 signals. kExitRetry lies among them (SIGUSR1's would be 138),
  // and from a program of Weir it is a code and no signal.
  const bool is_signal = code > 128 && code <= 128 + 64 && code != kExitRetry;
  if (is_signal) {
    return absl::StrCat("code ", code, " (signal ", code - 128, ")");
  }
  return absl::StrCat("code ", code);
}

// Starts, watches, signals and reaps the tasks of one plan.
class JobRun {
 public:
  JobRun(const LocalCluster& plan, const Supervisor::Options& rules,
         OutputForwarder* forwarder)
      : plan_(plan),
        forwarder_(forwarder),
        supervisor_(rules, plan.tasks),
        max_restarts_(rules.max_restarts),
        processes_(plan.tasks.size()) {}
  ~JobRun() { EndLeftovers(); }

  // Returns when nothing runs any more. Errors: a task cannot be started.
  absl::Status Run();
  // Prints on stderr what ended the job, and the last lines of that task.
  void Explain();
  int exit_code() const { return supervisor_.exit_code(); }

 private:
  struct TaskProcess {
    pid_t pid = 0;
    int64_t start_ns = 0;
    double ran_seconds = 0;
    Pressure pressed = Pressure::kNone;
    // Its last end was a failure, and nobody had told it to end.
    bool failed_by_itself = false;
  };

  absl::Status StartDue(int64_t now_ns);
  void CollectEnds(int64_t now_ns);
  void ReportEnd(int task);
  void HandleInterrupts(int64_t now_ns);
  // Hands the first signal on to the chief, which writes a checkpoint and stops
  // the workers. Once no chief runs, hands it on to the workers.
  void PassSignal();
  // Signals each task as hard as the supervisor says.
  void Press(int64_t now_ns);
  // Kills what tasks left in their process groups, and reaps the tasks.
  void EndLeftovers();
  std::string FailureText(int task) const;

  const LocalCluster& plan_;
  OutputForwarder* const forwarder_;
  Supervisor supervisor_;
  const int max_restarts_;
  std::vector<TaskProcess> processes_;  // by task
  std::vector<pid_t> ended_;            // leaders of groups, not yet reaped
  int handled_interrupts_ = 0;
  bool chief_told_ = false;
  bool workers_told_ = false;
};

absl::Status JobRun::StartDue(int64_t now_ns) {
  for (const int task : supervisor_.TakeStarts(now_ns)) {
    ChildCommand command = plan_.commands[task];
    WEIR_ASSIGN_OR_RETURN(
        const OutputForwarder::Pipes pipes,
        forwarder_->Open(supervisor_.tasks()[task].name(), command.log_path));
    command.stdout_fd = pipes.out_fd;
    command.stderr_fd = pipes.err_fd;
    TaskProcess& process = processes_[task];
    process = TaskProcess();
    process.start_ns = now_ns;
    WEIR_ASSIGN_OR_RETURN(process.pid, StartChild(command));
    // Our ends of the pipes close here. The child has its own, so the forwarder
    // sees the end of its output when the child and its helpers are gone.
  }
  return absl::OkStatus();
}

void JobRun::CollectEnds(int64_t now_ns) {
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (!supervisor_.tasks()[i].running) {
      continue;
    }
    TaskProcess& process = processes_[i];
    // Not reaped before EndLeftovers: until then the kernel gives the number of
    // its process group to nobody else, and helpers can be signalled by it.
    const auto code = ChildEnd(process.pid);
    if (!code.has_value()) {
      continue;
    }
    // Ends its helpers. One that cleans up behind the task may ignore SIGTERM
    // and ends by itself soon.
    kill(-process.pid, SIGTERM);
    ended_.push_back(std::exchange(process.pid, 0));
    process.ran_seconds = static_cast<double>(now_ns - process.start_ns) / 1e9;
    process.failed_by_itself = *code != kExitOk && handled_interrupts_ == 0 &&
                               process.pressed == Pressure::kNone;
    supervisor_.OnExit(static_cast<int>(i), *code, now_ns);
    ReportEnd(static_cast<int>(i));
  }
}

std::string JobRun::FailureText(int task) const {
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%.0f", processes_[task].ran_seconds);
  const LocalTask& ended = supervisor_.tasks()[task];
  return absl::StrCat("weir run: ", ended.name(), " failed with ",
                      CodeText(ended.exit_code), " after ", seconds, " s");
}

void JobRun::ReportEnd(int task) {
  if (!processes_[task].failed_by_itself) {
    return;
  }
  const LocalTask& ended = supervisor_.tasks()[task];
  if (supervisor_.ending()) {
    // Only the failure that ended the job is news; Explain names the others.
    if (supervisor_.failed_task() == task) {
      forwarder_->Note(absl::StrCat(FailureText(task), "; ending the job"));
    }
  } else if (ended.start_at_ns < 0) {  // no start is planned
    forwarder_->Note(
        absl::StrCat(FailureText(task), "; the job goes on without it"));
  } else {
    forwarder_->Note(absl::StrCat(FailureText(task), "; it is started again (",
                                  ended.restarts, " of ", max_restarts_, ")"));
  }
}

void JobRun::HandleInterrupts(int64_t now_ns) {
  // One round for each signal: two that come between two polls are a demand to
  // stop and a demand to kill.
  while (handled_interrupts_ < interrupts) {
    supervisor_.OnInterrupt(now_ns, 128 + first_signal);
    if (++handled_interrupts_ > 1) {
      continue;
    }
    forwarder_->Note("weir run: stopping; once more kills");
  }
  if (handled_interrupts_ > 0) {
    PassSignal();
  }
}

void JobRun::PassSignal() {
  const auto tell = [this](const std::string& role, bool* told) {
    bool any = false;
    for (size_t i = 0; i < processes_.size(); ++i) {
      const LocalTask& task = supervisor_.tasks()[i];
      if (!task.running || task.role != role) {
        continue;
      }
      any = true;
      if (*told) {
        continue;
      }
      // A terminal sends Ctrl-C to a command and its helpers, so that is what
      // programs expect. Other signals are sent to one process, which passes
      // them on to its helpers as it sees fit.
      if (first_signal == SIGINT) {
        kill(-processes_[i].pid, SIGINT);
      } else {
        kill(processes_[i].pid, SIGTERM);
      }
    }
    *told = true;
    return any;
  };
  // Called at every poll: workers are told when the chief has ended, which may
  // be long after the signal.
  if (!tell("chief", &chief_told_)) {
    tell("worker", &workers_told_);
  }
}

void JobRun::Press(int64_t now_ns) {
  for (size_t i = 0; i < processes_.size(); ++i) {
    TaskProcess& process = processes_[i];
    if (!supervisor_.tasks()[i].running) {
      continue;
    }
    const Pressure pressure =
        supervisor_.PressureOn(static_cast<int>(i), now_ns);
    if (pressure == process.pressed) {
      continue;  // it has this signal already
    }
    process.pressed = pressure;
    if (pressure == Pressure::kKill) {
      kill(-process.pid, SIGKILL);
    } else {
      kill(process.pid, SIGTERM);  // its helpers are its own
    }
  }
}

void JobRun::EndLeftovers() {
  for (TaskProcess& process : processes_) {
    if (process.pid > 0) {  // a start failed: the others still run
      kill(-process.pid, SIGKILL);
      ended_.push_back(std::exchange(process.pid, 0));
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + kLeftoverGrace;
  for (const pid_t pid : ended_) {
    // Ends at once: the process has ended or was killed above.
    while (!ReapChild(pid).has_value()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    // Without its leader the group is there only if helpers are left in it, and
    // while one is, the kernel keeps the group's number for it.
    while (kill(-pid, 0) == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        kill(-pid, SIGKILL);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  ended_.clear();
}

absl::Status JobRun::Run() {
  Clock* clock = Clock::Real();
  while (!supervisor_.finished()) {
    const int64_t now_ns = clock->NowNs();
    // If this fails, the destructor kills the tasks that run.
    WEIR_RETURN_IF_ERROR(StartDue(now_ns));
    CollectEnds(now_ns);
    HandleInterrupts(now_ns);
    Press(now_ns);
    if (!supervisor_.finished()) {
      std::this_thread::sleep_for(kPollEvery);
    }
  }
  ReleaseSignals();
  EndLeftovers();
  forwarder_->Finish(kOutputPatience);
  return absl::OkStatus();
}

void JobRun::Explain() {
  const int first = supervisor_.failed_task();
  for (size_t i = 0; i < processes_.size(); ++i) {
    const int task = static_cast<int>(i);
    if (task != first && processes_[i].failed_by_itself) {
      std::fprintf(stderr, "%s\n", FailureText(task).c_str());
    }
  }
  if (first < 0) {
    if (exit_code() != kExitOk) {
      std::fprintf(stderr, "weir run: interrupted\n");
    }
    return;
  }
  // Run has ended the forwarder, so the tail has all that was printed.
  const auto lines = forwarder_->Tail(supervisor_.tasks()[first].name());
  std::fprintf(stderr, "%s; %s\n", FailureText(first).c_str(),
               lines.empty() ? "it printed nothing" : "its last lines:");
  for (const std::string& line : lines) {
    std::fprintf(stderr, "  %s\n", line.c_str());
  }
}

// Makes the directory that the tasks are told of, and returns it; "" when there
// is to be none.
absl::StatusOr<std::string> PrepareWorkdir(const RunOptions& options) {
  if (options.workdir.empty() && !options.chief) {
    return "";
  }
  std::string workdir = options.workdir;
  if (workdir.empty()) {
    WEIR_ASSIGN_OR_RETURN(
        workdir, DefaultWorkdir(RunName(options.command), options.resume));
  }
  std::error_code ignored;
  workdir = std::filesystem::absolute(workdir, ignored).string();
  WEIR_ASSIGN_OR_RETURN(const bool exists, Files::Real()->Exists(workdir));
  if (options.resume && !exists) {
    return absl::InvalidArgumentError(
        absl::StrCat("--resume: there is no run in ", workdir,
                     "; check --workdir, or start one without --resume"));
  }
  // Without a chief there are only logs, which are appended to; a second run
  // may share the directory.
  if (options.chief && !options.resume) {
    WEIR_RETURN_IF_ERROR(CheckHoldsNoRun(workdir));
  }
  WEIR_RETURN_IF_ERROR(Files::Real()->MakeDirectories(workdir + "/logs"));
  if (options.workdir.empty()) {
    std::fprintf(stderr, "weir run: working directory %s\n", workdir.c_str());
  }
  return workdir;
}

// Turns the options into a plan of tasks. Makes the working directory last, so
// that a wrong option leaves nothing behind.
absl::StatusOr<LocalCluster> Plan(const RunOptions& options) {
  if (options.command.empty()) {
    return absl::InvalidArgumentError(
        "there is no command; write it after --: weir run "
        "--workers 2 -- python train.py");
  }
  if (options.ps_count < 1 || options.worker_count < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ps ", options.ps_count, " --workers ",
                     options.worker_count, ": each must be at least 1"));
  }
  if ((options.resume || !options.chief_flags.empty()) && !options.chief) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.resume ? "--resume" : options.chief_flags[0],
                     " is the chief's, who writes checkpoints and restores "
                     "them: add --chief"));
  }
  // Only the main thread reads or changes the environment.
  const char* path_value = std::getenv("PATH");  // NOLINT
  std::string path = "/bin:/usr/bin";            // execvp's without a PATH
  if (path_value != nullptr) {
    path = path_value;
  }
  CommandClusterOptions cluster;
  cluster.bin_dir = options.bin_dir;
  cluster.worker = options.command;
  WEIR_ASSIGN_OR_RETURN(cluster.worker[0],
                        FindProgram(options.command[0], path));
  auto evaluator = SplitWords(options.evaluator);
  if (evaluator.ok() && !evaluator->empty()) {
    const auto program = FindProgram((*evaluator)[0], path);
    if (program.ok()) {
      (*evaluator)[0] = *program;
    } else {
      evaluator = program.status();
    }
  }
  if (!evaluator.ok()) {
    return Annotate(evaluator.status(), "--evaluator");
  }
  cluster.evaluator = *evaluator;
  cluster.ps_count = options.ps_count;
  cluster.worker_count = options.worker_count;
  cluster.chief = options.chief;
  cluster.resume = options.resume;
  cluster.allow_older = options.allow_older;
  cluster.chief_flags = options.chief_flags;
  cluster.transport = options.transport;
  WEIR_ASSIGN_OR_RETURN(cluster.workdir, PrepareWorkdir(options));
  return PlanCommandCluster(cluster);
}

}  // namespace

absl::StatusOr<int> RunCommand(const RunOptions& options) {
  WEIR_ASSIGN_OR_RETURN(const LocalCluster plan, Plan(options));
  Supervisor::Options rules;
  rules.user_commands = true;
  rules.max_restarts = options.max_restarts;
  if (!options.chief) {
    rules.interrupt_grace = kWorkerInterruptGrace;
  }
  WEIR_ASSIGN_OR_RETURN(const auto forwarder, OutputForwarder::Create({}));
  CatchSignals();
  JobRun job(plan, rules, forwarder.get());
  WEIR_RETURN_IF_ERROR(job.Run());
  job.Explain();
  return job.exit_code();
}

}  // namespace weir
