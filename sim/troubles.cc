#include "sim/troubles.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/plant.h"
#include "common/threads/host_clocks.h"
#include "common/threads/scheduler.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using Whom = HealthChecks::Whom;

// With a quicker store a stop takes less than a ps waits for it.
constexpr auto kQuickStore = milliseconds(200);
constexpr auto kNow = std::chrono::seconds(0);
// Time and what tasks do are looked at so often at least.
constexpr std::chrono::nanoseconds kPoll = milliseconds(250);
constexpr auto kSecondStays = std::chrono::seconds(60);

Whom WhomOf(const Task& task) {
  if (task.role == "ps") {
    return Whom::kAll;
  }
  if (task.role == "evaluator") {
    return Whom::kEvaluator;
  }
  return task.role == "worker" ? Whom::kWorker : Whom::kChief;
}

Whom WhomOfPart(const Task& one, const Task& other) {
  if (one.role != "worker" && other.role != "worker") {
    return Whom::kAll;
  }
  return one.role == "chief" || other.role == "chief" ? Whom::kUnheard
                                                      : Whom::kWorker;
}

bool HitsAll(const Fault& fault) {
  return fault.kind == Fault::kPower || fault.kind == Fault::kTermAll;
}

}  // namespace

std::chrono::nanoseconds Troubles::Pause() const {
  return next_at_.has_value()
             ? std::clamp(*next_at_ - Now(), std::chrono::nanoseconds(1), kPoll)
             : kPoll;
}

void Troubles::Make() {
  EndTimed();
  if (over()) {
    Heal();
    return;
  }
  const Fault& fault = plan_.faults[done_];
  if (!next_at_.has_value()) {
    if (!MayBegin(fault)) {
      return;
    }
    next_at_ = Now() + fault.after;
  }
  if (Now() < *next_at_) {
    return;
  }
  Begin(fault);
  ++done_;
  next_at_.reset();
  seen_ = cluster_.events();
}

bool Troubles::MayBegin(const Fault& fault) {
  CheckpointChecks& checkpoints = cluster_.checkpoints();
  // The end of a job is behind its last checkpoint but one.
  if (plan_.late &&
      checkpoints.newest() + plan_.every_steps < plan_.last_step()) {
    return false;
  }
  const bool waits =
      WaitsFor(fault.at) || cluster_.health().Receipts() < fault.after_receipts;
  // A job that is done does nothing more.
  return !waits || checkpoints.Done();
}

bool Troubles::WaitsFor(Fault::Event event) const {
  if (event == Fault::kQuiet) {
    return !cluster_.health().InQuiet();
  }
  return event != Fault::kAnything && cluster_.events()[event] == seen_[event];
}

Task* Troubles::TaskOf(const Fault& fault) const {
  const Cluster::Tasks& tasks = cluster_.tasks();
  const auto ps = static_cast<size_t>(plan_.ps);
  const auto workers = static_cast<size_t>(plan_.workers);
  const std::array<size_t, 4> counts = {ps, 1, workers, 1};
  const std::array<size_t, 4> firsts = {0, ps, ps + 1, ps + 1 + workers};
  const size_t role = fault.role % (plan_.evaluator ? 4 : 3);
  return tasks[firsts[role] + fault.task % counts[role]].get();
}

// One that this task speaks with: an evaluator does with nobody.
const Task& Troubles::PeerOf(const Task& task, size_t number) const {
  std::vector<const Task*> peers;
  for (const auto& other : cluster_.tasks()) {
    if (other->role != task.role && other->role != "evaluator") {
      peers.push_back(other.get());
    }
  }
  return *peers[number % peers.size()];
}

bool Troubles::PartsPsAndChief(const Fault& fault) const {
  const auto holds = [](const Task& task) {
    return task.role == "ps" || task.role == "chief";
  };
  if (!MayBeDeaf(fault) || HitsAll(fault)) {
    return MayBeDeaf(fault);
  }
  const Task& task = *TaskOf(fault);
  return holds(task) &&
         (fault.kind != Fault::kPart || holds(PeerOf(task, fault.other)));
}

void Troubles::SetWallClock(std::chrono::nanoseconds by) {
  if (by.count() == 0) {
    return;
  }
  ++counts_.wall_steps;
  StepWall(by);
  if (Planted("clock.wall_waits")) {
    MoveWaits(by);
  }
}

void Troubles::Begin(const Fault& fault) {
  SetWallClock(fault.wall);
  if (PartsPsAndChief(fault)) {
    // Of a task that is started twice one may stay for a while.
    cluster_.Deafen(Now() + fault.time +
                    (fault.kind == Fault::kSecond ? kSecondStays : kNow));
  }
  if (BeginForAll(fault)) {
    Note(KindName(fault.kind));
    return;
  }
  Task* const task = TaskOf(fault);
  if (task->runs()) {
    Note(absl::StrCat(KindName(fault.kind), ": ", task->name));
    BeginFor(task, fault);
  }
}

// Whether it is one that hits no single task.
bool Troubles::BeginForAll(const Fault& fault) {
  const auto end = Now() + fault.time;
  switch (fault.kind) {
    case Fault::kFull:
      ++counts_.store;
      timed_.FullUntil(end);
      return true;
    case Fault::kFail:
      ++counts_.store;
      timed_.FailUntil(end);
      return true;
    case Fault::kRot:
      cluster_.Rot();
      return true;
    case Fault::kHang:
      ++counts_.store;
      timed_.HangUntil(end, fault.wait);
      return true;
    case Fault::kPower:
      ++counts_.power;
      cluster_.LosePower(end);
      return true;
    case Fault::kTermAll:
      if (cluster_.AllAreTerminated()) {
        cluster_.health().Trouble(end, Whom::kLeaving);
      } else {
        BeginStop(end, /*everybody=*/true);
      }
      cluster_.InterruptAll(end, fault.together);
      return true;
    default:
      return false;
  }
}

void Troubles::BeginFor(Task* task, const Fault& fault) {
  HealthChecks& health = cluster_.health();
  const auto end = Now() + fault.time;
  const Whom whom = WhomOf(*task);
  switch (fault.kind) {
    case Fault::kTerm:
      // A ps asks its chief to stop the job.
      if (task->role == "chief" || task->role == "ps") {
        BeginStop(Now(), /*everybody=*/false);
      } else {
        health.Trouble(Now(), whom);
      }
      cluster_.Terminate(task);
      return;
    case Fault::kKill:
      ++counts_.kills;
      health.Trouble(end, whom);
      cluster_.KillUntil(task, end);
      return;
    case Fault::kPart: {
      const Task& other = PeerOf(*task, fault.other);
      if (other.runs()) {
        ++counts_.parts;
        health.Trouble(end, WhomOfPart(*task, other));
        cluster_.network().Part(task->run->process, other.run->process,
                                fault.time, fault.one_way);
      }
      return;
    }
    case Fault::kPause:
      ++counts_.pauses;
      health.Trouble(end, whom == Whom::kChief ? Whom::kSilentChief : whom);
      health.OnSlow(task->run->process, end);
      timed_.PauseUntil(task->run->process, end);
      cluster_.network().Halted(task->run->process, fault.time);
      return;
    case Fault::kSlow:
      ++counts_.slow;
      // A slow chief holds workers for long, too.
      // What it does when it is quick again began while it was slow.
      health.Trouble(end + 2 * fault.wait,
                     whom == Whom::kChief ? Whom::kAll : whom);
      health.OnSlow(task->run->process, end);
      timed_.SlowUntil(
          task->run->process, end, fault.wait,
          task->role == "worker" ? plan_.pace : std::chrono::nanoseconds(0));
      return;
    case Fault::kSecond:
      ++counts_.seconds;
      if (task->role == "chief" && fault.on_same_host) {
        cluster_.StartSecondInVain(task);
      } else {
        cluster_.StartSecond(task, fault.time);
      }
      return;
    default:
      return;
  }
}

void Troubles::BeginStop(std::chrono::nanoseconds until, bool everybody) {
  HealthChecks& health = cluster_.health();
  const bool all_run = std::all_of(
      cluster_.tasks().begin(), cluster_.tasks().end(), [](const auto& task) {
        return task->role == "worker" || task->role == "evaluator" ||
               task->runs();
      });
  // Of scripts, each ends inside a push.
  const bool tears = everybody && plan_.script;
  if (all_run && !tears && !store_is_slow() &&
      plan_.store.delay_max <= kQuickStore) {
    health.OnStop(until, everybody);
  } else {
    health.Trouble(until, Whom::kAll);
  }
}

void Troubles::EndTimed() {
  timed_.Tick();
  HealthChecks& health = cluster_.health();
  const uint64_t unavailable = cluster_.place().unavailable();
  if (std::exchange(unavailable_, unavailable) != unavailable) {
    health.Trouble(Now(), Whom::kAll);
  }
  // A start with other troubles may have to read longer than others wait.
  const auto until =
      std::max({timed_.slow_until(), timed_.full_until(), timed_.fail_until()});
  if (Now() < until && !health.AllAreAtWork()) {
    health.Trouble(until, Whom::kChief);
  }
}

void Troubles::Heal() {
  if (!std::exchange(healed_, true)) {
    Faults calm = plan_.network;
    calm.reset_one_in = 0;
    cluster_.network().SetFaults(calm);
    timed_.Heal();
  }
}

}  // namespace weir::sim
