#include "deploy/launcher/job_run.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "deploy/launcher/child_process.h"

namespace weir {
namespace {

using Pressure = Supervisor::Pressure;

constexpr auto kPollEvery = std::chrono::milliseconds(50);
// The time in which helpers of a task may see that it is gone and end, all
// tasks' helpers together.
constexpr auto kLeftoverGrace = std::chrono::milliseconds(500);
// Whoever wrote to a pipe is gone by then, except for a daemon that left its
// process group and keeps the pipe open: nobody waits for that.
constexpr auto kOutputPatience = std::chrono::milliseconds(500);

// A terminal that is closed (SIGHUP) ends a job in order, too, unless nohup
// made the launcher ignore it.
std::vector<int> EndSignals() {
  std::vector<int> signals = {SIGINT, SIGTERM};
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) {
    signals.push_back(SIGHUP);
  }
  return signals;
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

// Tests name a failpoint for one task by WEIR_FAILPOINT_WORKER_1=name:nth. Only
// the task's first process gets it; with it in the next one, too, no task would
// ever get past the failpoint.
void AddFailpoint(const LocalTask& task, ChildCommand* command) {
  const std::string name = absl::StrCat(
      "WEIR_FAILPOINT_", absl::AsciiStrToUpper(task.role), "_", task.index);
  // Only this thread changes or reads the environment.
  const char* value = std::getenv(name.c_str());  // NOLINT
  if (task.restarts == 0 && value != nullptr) {
    command->environment.push_back(absl::StrCat("WEIR_FAILPOINT=", value));
  }
}

}  // namespace

JobRun::JobRun(LocalCluster plan, Options options)
    : plan_(std::move(plan)),
      options_(std::move(options)),
      supervisor_(options_.rules, plan_.tasks),
      processes_(plan_.tasks.size()) {}

absl::StatusOr<std::unique_ptr<JobRun>> JobRun::Create(LocalCluster plan,
                                                       Options options) {
  std::unique_ptr<JobRun> run(new JobRun(std::move(plan), std::move(options)));
  signal(SIGCHLD, SIG_DFL);  // ends are waited for, whatever was inherited
  run->signals_ = std::make_unique<StopSignal>(EndSignals());
  if (run->options_.reap_orphans) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  if (run->options_.pass_output && run->options_.note == nullptr) {
    run->options_.note = [](const std::string& line) {
      absl::FPrintF(stderr, "%s\n", line);
    };
  }
  OutputForwarder::Options forwarder;
  forwarder.show = run->options_.show_output;
  WEIR_ASSIGN_OR_RETURN(run->forwarder_, OutputForwarder::Create(forwarder));
  if (run->options_.note == nullptr) {
    run->options_.note = [to = run->forwarder_.get()](const std::string& line) {
      to->Note(line);
    };
  }
  return run;
}

absl::Status JobRun::Start(int task, int64_t now_ns) {
  TaskProcess& process = processes_[task];
  process = TaskProcess();
  process.start_ns = now_ns;
  ChildCommand command = plan_.commands[task];
  AddFailpoint(tasks()[task], &command);
  OutputForwarder::Pipes pipes;
  if (options_.pass_output) {
    command.stdout_fd = STDOUT_FILENO;
    command.stderr_fd = STDERR_FILENO;
  } else {
    WEIR_ASSIGN_OR_RETURN(
        pipes, forwarder_->Open(tasks()[task].name(), command.log_path));
    command.stdout_fd = pipes.out.get();
    command.stderr_fd = pipes.err.get();
  }
  if (options_.rules.alone) {
    // Over weeks the ends of many runs would gather, and what they left.
    EndLeftovers();
  }
  WEIR_ASSIGN_OR_RETURN(process.pid, StartChild(command));
  // Our ends of the pipes close here. The child has its own, so the forwarder
  // sees the end of its output when the child and its helpers are gone.
  return absl::OkStatus();
}

absl::Status JobRun::StartDue(int64_t now_ns) {
  for (const int task : supervisor_.TakeStarts(now_ns)) {
    const absl::Status started = Start(task, now_ns);
    if (started.ok()) {
      continue;
    }
    if (tasks()[task].exit_code < 0) {
      return started;  // it never ran: there is no work to be saved yet
    }
    // What it lacks, processes or descriptors for example, may be there soon.
    options_.note(absl::StrCat(options_.program, ": ", tasks()[task].name(),
                               " cannot be started: ", started.message()));
    processes_[task].failed_by_itself = true;
    supervisor_.OnExit(task, kExitRetry, now_ns);
    ReportEnd(task);
  }
  return absl::OkStatus();
}

void JobRun::CollectEnds(int64_t now_ns) {
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (!tasks()[i].running) {
      continue;
    }
    TaskProcess& process = processes_[i];
    // Not reaped before EndLeftovers: until then the kernel gives the number of
    // its process group to nobody else, and helpers can be signalled by it.
    const auto code = ChildEnd(process.pid);
    if (!code.has_value()) {
      continue;
    }
    // A signal to all processes has come to this one, too. Whoever obeys it did
    // not fail.
    HandleSignals(now_ns);
    // Ends its helpers. One that cleans up behind the task may ignore SIGTERM
    // and ends by itself soon.
    kill(-process.pid, SIGTERM);
    ended_.push_back(std::exchange(process.pid, 0));
    process.ran_seconds = static_cast<double>(now_ns - process.start_ns) / 1e9;
    process.failed_by_itself = *code != kExitOk && handled_signals_ == 0 &&
                               process.pressed == Pressure::kNone;
    supervisor_.OnExit(static_cast<int>(i), *code, now_ns);
    ReportEnd(static_cast<int>(i));
  }
}

std::string JobRun::FailureText(int task) const {
  const LocalTask& ended = tasks()[task];
  return absl::StrFormat("%s: %s failed with %s after %.0f s", options_.program,
                         ended.name(), CodeText(ended.exit_code),
                         processes_[task].ran_seconds);
}

void JobRun::ReportEnd(int task) {
  if (!processes_[task].failed_by_itself) {
    return;
  }
  const LocalTask& ended = tasks()[task];
  if (supervisor_.ending()) {
    // Only the failure that ended the job is news; Explain names the others.
    if (supervisor_.failed_task() == task) {
      options_.note(absl::StrCat(
          FailureText(task), options_.rules.alone ? "; it is not started again"
                                                  : "; ending the job"));
    }
  } else if (ended.start_at_ns < 0) {  // no start is planned
    options_.note(
        absl::StrCat(FailureText(task), "; the job goes on without it"));
  } else {
    options_.note(absl::StrCat(FailureText(task), "; it is started again (",
                               ended.restarts, " of ",
                               options_.rules.max_restarts, ")"));
  }
}

void JobRun::HandleSignals(int64_t now_ns) {
  // One round for each signal: two that come between two polls are a demand to
  // stop and a demand to kill.
  while (handled_signals_ < signals_->count()) {
    supervisor_.OnInterrupt(now_ns, 128 + signals_->first());
    if (++handled_signals_ == 1) {
      options_.note(
          absl::StrCat(options_.program, ": stopping",
                       options_.rules.alone ? "" : "; once more kills"));
    }
  }
  // At every poll: workers are told when the chief has ended, which may be long
  // after the signal.
  for (const int task : supervisor_.TakeStops()) {
    // A terminal sends Ctrl-C to a command and its helpers, so that is what
    // programs expect. Other signals are sent to one process, which passes
    // them on to its helpers as it sees fit.
    if (signals_->first() == SIGINT) {
      kill(-processes_[task].pid, SIGINT);
    } else {
      kill(processes_[task].pid, SIGTERM);
    }
  }
}

void JobRun::Press(int64_t now_ns) {
  for (size_t i = 0; i < processes_.size(); ++i) {
    TaskProcess& process = processes_[i];
    if (!tasks()[i].running) {
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

void JobRun::ReapOrphans() {
  const auto is_own = [this](pid_t pid) {
    return std::any_of(processes_.begin(), processes_.end(),
                       [pid](const TaskProcess& p) { return p.pid == pid; }) ||
           std::find(ended_.begin(), ended_.end(), pid) != ended_.end();
  };
  for (;;) {
    siginfo_t info = {};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0 || is_own(info.si_pid)) {
      return;  // an end of our own tasks is CollectEnds's
    }
    ReapChild(info.si_pid);
  }
}

absl::Status JobRun::Run() {
  Clock* clock = Clock::Real();
  while (!supervisor_.finished()) {
    const int64_t now_ns = clock->NowNs();
    // If this fails, the destructor kills the tasks that run.
    WEIR_RETURN_IF_ERROR(StartDue(now_ns));
    CollectEnds(now_ns);
    if (options_.reap_orphans) {
      ReapOrphans();
    }
    HandleSignals(now_ns);
    Press(now_ns);
    if (!supervisor_.ending() && options_.on_poll != nullptr) {
      options_.on_poll(now_ns);
    }
    if (!supervisor_.finished()) {
      std::this_thread::sleep_for(kPollEvery);
    }
  }
  // The job is over: Ctrl-C only stops what is left to be shown or read.
  signals_.reset();
  if (options_.show_output) {
    signal(SIGPIPE, SIG_IGN);  // the exit code still says how the job ended
  }
  EndLeftovers();
  forwarder_->Finish(kOutputPatience);
  return absl::OkStatus();
}

void JobRun::Stop(int code) {
  supervisor_.OnInterrupt(Clock::Real()->NowNs(), code);
}

void JobRun::Explain() {
  const int first = supervisor_.failed_task();
  for (size_t i = 0; i < processes_.size(); ++i) {
    const int task = static_cast<int>(i);
    if (task != first && processes_[i].failed_by_itself) {
      absl::FPrintF(stderr, "%s\n", FailureText(task));
    }
  }
  if (first >= 0) {
    // Run has ended the forwarder, so the tail has all that was printed.
    const auto lines = forwarder_->Tail(tasks()[first].name());
    absl::FPrintF(stderr, "%s; %s\n", FailureText(first),
                  lines.empty() ? "it printed nothing" : "its last lines:");
    for (const std::string& line : lines) {
      absl::FPrintF(stderr, "  %s\n", line);
    }
  } else if (exit_code() != kExitOk) {
    absl::FPrintF(stderr, "%s: interrupted\n", options_.program);
  }
  if (!supervisor_.advice().empty()) {
    absl::FPrintF(stderr, "%s: %s\n", options_.program, supervisor_.advice());
  }
}

}  // namespace weir
