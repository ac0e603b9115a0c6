#include "deploy/launcher/supervisor.h"

#include <algorithm>
#include <utility>

#include "common/base/exit_code.h"

namespace weir {

Supervisor::Supervisor(Options options, std::vector<LocalTask> tasks)
    : options_(options), tasks_(std::move(tasks)), main_role_("worker") {
  for (const LocalTask& task : tasks_) {
    if (task.role == "chief") {
      main_role_ = "chief";
    }
  }
}

bool Supervisor::IsMain(const LocalTask& task) const {
  return options_.alone || (task.role == main_role_ && task.index == 0);
}

bool Supervisor::HostsChief(const LocalTask& task) const {
  // A task that is alone hears the user's signal at once, as a chief does.
  return options_.alone ||
         (IsMain(task) && (task.role == "chief" || !options_.user_commands));
}

bool Supervisor::Runs(const char* role) const {
  return std::any_of(tasks_.begin(), tasks_.end(), [role](const LocalTask& t) {
    return t.running && t.role == role;
  });
}

bool Supervisor::AllWorkersAreDone() const {
  return std::all_of(tasks_.begin(), tasks_.end(), [](const LocalTask& t) {
    return t.role != "worker" || (!t.running && t.exit_code == kExitOk);
  });
}

bool Supervisor::IsReplaced(const LocalTask& task) const {
  return !task.running && task.exit_code == kExitReplaced &&
         task.role != "ps" &&
         !(options_.user_commands && task.role == "worker");
}

void Supervisor::EndIfNobodyIsLeft(int64_t now_ns) {
  int replaced = -1;
  int others = 0;
  bool all_well = true;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const LocalTask& task = tasks_[i];
    if (task.role != "chief" && task.role != "worker") {
      continue;
    }
    if (task.running || task.start_at_ns >= 0) {
      return;  // I6: somebody of the job is here, or will be again
    }
    if (IsMain(task) && IsReplaced(task)) {
      replaced = static_cast<int>(i);
    } else {
      ++others;
      all_well = all_well && (task.exit_code == kExitOk || IsReplaced(task));
    }
  }
  if (replaced < 0) {
    return;
  }
  // The job has not failed: whoever replaced the main task goes on with it. If
  // others did their part here to the end, that is a good end; if the main task
  // was alone, its code tells the caller where the job went.
  if (others > 0 && all_well) {
    End(kExitOk, options_.finish_grace, now_ns);
  } else {
    Fail(replaced, kExitReplaced, options_.permanent_grace, now_ns,
         "another process has its place; the job goes on there");
  }
}

std::vector<int> Supervisor::TakeStarts(int64_t now_ns) {
  std::vector<int> starts;
  // I3: a start that was planned before the end is forgotten.
  for (size_t i = 0; i < tasks_.size() && !ending_; ++i) {
    LocalTask& task = tasks_[i];
    if (!task.running && task.start_at_ns >= 0 && task.start_at_ns <= now_ns) {
      task.running = true;
      task.started_ns = now_ns;
      starts.push_back(static_cast<int>(i));
    }
  }
  return starts;
}

std::vector<int> Supervisor::TakeStops() {
  std::vector<int> stops;
  const bool is_done = !options_.user_commands && exit_code_ == kExitOk;  // I5
  if (!interrupted_ || is_done) {
    return stops;
  }
  const bool chief_first =
      std::any_of(tasks_.begin(), tasks_.end(), [this](const LocalTask& task) {
        return task.running && HostsChief(task);
      });
  for (size_t i = 0; i < tasks_.size(); ++i) {
    LocalTask& task = tasks_[i];
    const bool is_next = chief_first ? HostsChief(task) : task.role == "worker";
    if (task.running && is_next && !task.told_to_stop) {
      task.told_to_stop = true;
      stops.push_back(static_cast<int>(i));
    }
  }
  return stops;
}

void Supervisor::End(int code, std::chrono::nanoseconds grace, int64_t now_ns,
                     std::string advice) {
  if (ending_) {
    return;  // the first reason counts; what follows is its consequence
  }
  ending_ = true;
  exit_code_ = code;
  advice_ = std::move(advice);
  terminate_at_ns_ = now_ns + grace.count();
  if (code == kExitOk) {
    terminate_chief_at_ns_ = now_ns + options_.chief_grace.count();
  }
  Hurry(now_ns);
}

void Supervisor::Fail(int task, int code, std::chrono::nanoseconds grace,
                      int64_t now_ns, std::string advice) {
  failed_task_ = task;
  End(code, grace, now_ns, std::move(advice));
}

void Supervisor::Hurry(int64_t now_ns) {
  // Others still have something to finish: here, or where they run when this
  // task is alone.
  if (options_.alone || Runs("chief") || Runs("worker")) {
    return;
  }
  // After a failure no checkpoint comes that the evaluator could wait for.
  if (exit_code_ != kExitOk) {
    terminate_at_ns_ = std::min(terminate_at_ns_, now_ns);
  }
  // I4: a ps serves until everybody who may ask it is gone.
  if (!Runs("evaluator")) {
    int64_t grace = 0;
    if (!options_.user_commands) {
      grace = options_.permanent_grace.count();
    }
    terminate_ps_at_ns_ = std::min(terminate_ps_at_ns_, now_ns + grace);
  }
}

void Supervisor::OnLateExit(int index, int64_t now_ns) {
  const LocalTask& task = tasks_[index];
  if (options_.alone) {
    exit_code_ = task.exit_code;
  } else if (!options_.user_commands) {
    // I5: a stop and the last step may cross, and the main task knows which of
    // the two came first. After a second Ctrl-C the others are killed in the
    // middle of their work, which is no good end.
    if (IsMain(task) && task.exit_code == kExitOk && !killing_) {
      exit_code_ = kExitOk;
      failed_task_ = -1;
      advice_.clear();
      terminate_at_ns_ = now_ns + options_.finish_grace.count();
    }
  } else if (task.role == "chief" && exit_code_ == kExitOk) {
    if (task.exit_code != kExitOk) {
      // The workers are done, but the last checkpoint was not written.
      exit_code_ = task.exit_code;
      failed_task_ = index;
    } else {
      // The last checkpoint is there now; the evaluator's grace begins.
      terminate_at_ns_ = now_ns + options_.finish_grace.count();
    }
  }
  Hurry(now_ns);
}

void Supervisor::OnExit(int index, int code, int64_t now_ns) {
  LocalTask& task = tasks_[index];
  task.running = false;
  task.exit_code = code;
  task.start_at_ns = -1;
  if (options_.healthy_after.count() > 0 &&
      now_ns - task.started_ns >= options_.healthy_after.count()) {
    task.restarts = 0;
  }
  if (ending_) {
    OnLateExit(index, now_ns);
    return;
  }
  if (code == kExitOk) {
    // A ps that ended well was told to by the chief, which ends next.
    bool is_done = IsMain(task);
    if (options_.user_commands && !options_.alone) {
      is_done = AllWorkersAreDone();
    }
    if (is_done) {
      End(kExitOk, options_.finish_grace, now_ns);
    }
    EndIfNobodyIsLeft(now_ns);
    return;
  }
  if (IsReplaced(task) &&
      !options_.alone) {  // I6: not a failure, and not started again either
    EndIfNobodyIsLeft(now_ns);
    return;
  }
  if (task.role == "ps" &&
      !options_.alone) {  // I1: before the rule on restarts below
    if (options_.user_commands) {
      Fail(index, code, options_.permanent_grace, now_ns);
    } else {
      Fail(index, kExitRetry, options_.failure_grace, now_ns,
           "start again with --resume");
    }
    return;
  }
  if (IsTransientExit(code) && task.restarts < options_.max_restarts) {  // I2
    // The shift stays below 21 so that the product cannot overflow; delay_max
    // is reached long before.
    const auto delay =
        options_.first_delay * (int64_t{1} << std::min(task.restarts, 20));
    ++task.restarts;
    task.start_at_ns = now_ns + std::min(delay, options_.delay_max).count();
    return;
  }
  if (task.role == "evaluator" && !options_.alone) {
    return;  // training goes on without it
  }
  // Weir's own tasks notice a lost peer and end with a reason in their log. A
  // user's programs would wait for a peer that does not come again.
  std::chrono::nanoseconds grace = options_.permanent_grace;
  if (IsTransientExit(code) && !options_.user_commands) {
    grace = options_.failure_grace;
  }
  Fail(index, code, grace, now_ns);
}

void Supervisor::OnInterrupt(int64_t now_ns, int code) {
  if (interrupted_ && options_.alone) {
    return;
  }
  if (interrupted_) {
    killing_ = true;
    // As if SIGTERM had been sent so long ago that SIGKILL is due now.
    terminate_at_ns_ = now_ns - options_.kill_grace.count();
    return;
  }
  interrupted_ = true;
  std::string advice;
  if (!options_.user_commands) {
    advice = "go on with --resume";
  }
  End(code, options_.interrupt_grace, now_ns, std::move(advice));
}

Supervisor::Pressure Supervisor::PressureSince(
    int64_t terminate_at_ns, std::chrono::nanoseconds kill_grace,
    int64_t now_ns) const {
  if (!ending_ || now_ns < terminate_at_ns) {
    return Pressure::kNone;
  }
  if (now_ns < terminate_at_ns + kill_grace.count()) {
    return Pressure::kTerminate;
  }
  return Pressure::kKill;
}

int64_t Supervisor::TerminateAtNs(const LocalTask& task) const {
  if (options_.alone) {
    return terminate_at_ns_;
  }
  if (task.role == "ps") {
    return terminate_ps_at_ns_;
  }
  if (exit_code_ == kExitOk && task.role == "chief") {
    return terminate_chief_at_ns_;
  }
  // I4: at a good end the evaluator waits for the chief's last checkpoint. Its
  // time is set when the chief has ended (OnLateExit).
  if (exit_code_ == kExitOk && Runs("chief")) {
    return std::numeric_limits<int64_t>::max();
  }
  return terminate_at_ns_;
}

Supervisor::Pressure Supervisor::PressureOn(int index, int64_t now_ns) const {
  if (killing_) {
    return PressureSince(terminate_at_ns_, options_.kill_grace, now_ns);
  }
  const LocalTask& task = tasks_[index];
  std::chrono::nanoseconds kill_grace = options_.kill_grace;
  if (task.role == "chief") {  // SIGTERM makes it write a checkpoint
    kill_grace = options_.chief_kill_grace;
  }
  return PressureSince(TerminateAtNs(task), kill_grace, now_ns);
}

bool Supervisor::finished() const {
  return ending_ && std::none_of(tasks_.begin(), tasks_.end(),
                                 [](const LocalTask& t) { return t.running; });
}

}  // namespace weir
