#include "deploy/launcher/supervisor.h"

#include <algorithm>
#include <utility>

#include "common/exit_code.h"

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
  return task.role == main_role_ && task.index == 0;
}

std::vector<int> Supervisor::TakeStarts(int64_t now_ns) {
  std::vector<int> starts;
  for (size_t i = 0; i < tasks_.size() && !ending_; ++i) {
    LocalTask& task = tasks_[i];
    if (!task.running && task.start_at_ns >= 0 && task.start_at_ns <= now_ns) {
      task.running = true;
      starts.push_back(static_cast<int>(i));
    }
  }
  return starts;
}

void Supervisor::End(int code, std::string reason,
                     std::chrono::nanoseconds grace, int64_t now_ns) {
  if (ending_) {
    return;
  }
  ending_ = true;
  exit_code_ = code;
  reason_ = std::move(reason);
  terminate_at_ns_ = now_ns + grace.count();
}

void Supervisor::HurryServers(int64_t now_ns) {
  if (exit_code_ == kExitOk) {
    return;  // the evaluator sees that the job is done
  }
  int64_t grace = 0;
  for (const LocalTask& task : tasks_) {
    if (!task.running || task.role == "evaluator") {
      continue;
    }
    if (task.role != "ps") {
      return;
    }
    grace = options_.permanent_grace.count();
  }
  terminate_at_ns_ = std::min(terminate_at_ns_, now_ns + grace);
}

void Supervisor::OnExit(int index, int code, int64_t now_ns) {
  LocalTask& task = tasks_[index];
  task.running = false;
  task.exit_code = code;
  task.start_at_ns = -1;
  if (ending_) {
    HurryServers(now_ns);
    return;
  }
  const std::string what =
      task.name() + " ended with code " + std::to_string(code);
  if (code == kExitOk) {
    // A ps that ended well was told to by the chief, which ends next.
    if (IsMain(task)) {
      End(kExitOk, "", options_.finish_grace, now_ns);
    }
    return;
  }
  if (task.role == "ps") {
    End(kExitRetry, what + "; start again with --resume",
        options_.failure_grace, now_ns);
    return;
  }
  if (IsTransientExit(code) && task.restarts < options_.max_restarts) {
    const auto delay =
        options_.first_delay * (int64_t{1} << std::min(task.restarts, 20));
    ++task.restarts;
    task.start_at_ns = now_ns + std::min(delay, options_.delay_max).count();
    return;
  }
  if (task.role == "evaluator") {
    return;  // training goes on without it
  }
  End(code,
      IsTransientExit(code) ? what + " and was started again " +
                                  std::to_string(task.restarts) + " times"
                            : what,
      IsTransientExit(code) ? options_.failure_grace : options_.permanent_grace,
      now_ns);
}

void Supervisor::OnInterrupt(int64_t now_ns) {
  if (interrupted_) {
    terminate_at_ns_ = now_ns - options_.kill_grace.count();
    return;
  }
  interrupted_ = true;
  End(kExitInterrupted, "interrupted; go on with --resume",
      options_.interrupt_grace, now_ns);
}

Supervisor::Pressure Supervisor::PressureAt(int64_t now_ns) const {
  if (!ending_ || now_ns < terminate_at_ns_) {
    return Pressure::kNone;
  }
  return now_ns < terminate_at_ns_ + options_.kill_grace.count()
             ? Pressure::kTerminate
             : Pressure::kKill;
}

bool Supervisor::finished() const {
  return ending_ && std::none_of(tasks_.begin(), tasks_.end(),
                                 [](const LocalTask& t) { return t.running; });
}

}  // namespace weir
