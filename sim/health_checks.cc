#include "sim/health_checks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "common/threads/scheduler.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// So long after trouble, and until whoever is silent is lost, it may still end
// a task: the waits of a worker and a chief for each other are shorter.
constexpr auto kEffectMax = seconds(65);
// In quiet a worker that has work pushes something in so long, not counted what
// the slowest messages and turns take. A checkpoint keeps it waiting for some
// objects.
constexpr auto kIdleMax = seconds(30);
constexpr int kObjectsOfHold = 20;
// The same in async, where it waits for no other worker.
constexpr auto kIdleMaxAlone = seconds(12);
// While there is no chief nobody holds it either.
constexpr auto kIdleMaxWithoutChief = seconds(6);
constexpr int kStepsOfPush = 8;
constexpr int kWaves = 2;  // with bounded staleness
constexpr int kMessagesOfPush = 20;
constexpr int kTurnsOfPush = 20;
// So long behind that a peer that does not answer counts as away.
constexpr auto kSilentMax = seconds(11);
// A hold in vain that took longer for a worker, and not counted what its
// messages and turns took, is not repeated before several times what it took.
constexpr auto kLongHold = seconds(1);
constexpr int kMessagesOfHold = 4;
constexpr int kTurnsOfHold = 4;
constexpr int kPauses = 3;
// So long, and a start, takes a chief until a ps that was lost has its values.
constexpr auto kFillMax = seconds(10);
// No stop is looked at that begins so soon after trouble.
constexpr auto kBeforeStop = seconds(10);
// But where all are at work again.
constexpr auto kQuiet = seconds(2);

// Of a ps or the chief.
bool HoldsJob(const std::string& task) {
  return absl::StartsWith(task, "ps") || absl::StartsWith(task, "chief");
}

}  // namespace

void HealthChecks::Trouble(nanoseconds until, Whom whom) {
  Affect(until, whom);
  // In sync a stop holds nobody. Else a worker may be inside a contribution,
  // which only another one can finish.
  const bool sync = plan_.mode == Mode::kSync;
  const bool stops = (whom == Whom::kWorker && (sync || AllWorkersStay())) ||
                     whom == Whom::kEvaluator || whom == Whom::kLeaving ||
                     (whom == Whom::kUnheard && sync);
  if (!stops) {
    to_save_.reset();
  }
}

void HealthChecks::Affect(nanoseconds until, Whom whom) {
  trouble_until_ = std::max(trouble_until_, until);
  if (whom == Whom::kSilentChief || whom == Whom::kUnheard) {
    hard_trouble_until_ =
        std::max(hard_trouble_until_,
                 std::min(until, Now() + plan_.lost_after + kSilentMax));
    whom = Whom::kChief;
  }
  if (whom == Whom::kWorker) {
    worker_trouble_until_ = std::max(worker_trouble_until_, until);
  } else if (whom == Whom::kChief || whom == Whom::kEvaluator) {
    chief_trouble_until_ = std::max(chief_trouble_until_, until);
  } else {
    hard_trouble_until_ = std::max(hard_trouble_until_, until);
  }
}

void HealthChecks::OnStart(int process, const std::string& task, bool done) {
  for (const auto& [other, known] : processes_) {
    if (known.task == task) {
      ++may_be_replaced_[task];
    }
  }
  processes_[process] = {task, Now(), done, /*leaving=*/false};
}

HealthChecks::Process HealthChecks::Forget(int process) {
  workers_.erase(process);
  auto known = processes_.extract(process);
  if (known.empty()) {
    return Process();
  }
  if (HoldsJob(known.mapped().task)) {
    holder_gone_ = Now();
  }
  if (absl::StartsWith(known.mapped().task, "chief")) {
    stop_under_way_ = false;
  }
  if (absl::StartsWith(known.mapped().task, "ps")) {
    ps_gone_ = Now();
    // What it takes with it each script learns when it joins again; slots of
    // others count from 0 again.
    of_slot_.clear();
  }
  return std::move(known.mapped());
}

void HealthChecks::OnProgress(int process, const Progress& progress) {
  const auto [found, fresh] = workers_.try_emplace(process);
  Worker& worker = found->second;
  if (fresh || worker.slot != progress.slot()) {
    worker.slot = progress.slot();
    worker.next = 0;
    worker.begun.clear();
    worker.may_be_finished = false;
    worker.since = Now();
  }
  worker.next = std::max(worker.next, progress.next_sequence());
  while (!worker.begun.empty() &&
         worker.begun.begin()->first < progress.next_sequence()) {
    worker.taken = worker.begun.begin()->second;
    worker.begun.erase(worker.begun.begin());
  }
  worker.out_of_work = progress.out_of_work();
  if (!plan_.script) {
    of_slot_[worker.slot] = progress.next_sequence();
  }
}

bool HealthChecks::PsMayBeEmpty() const {
  return chief_ran_ < ps_gone_ + kFillMax + plan_.start_time();
}

bool HealthChecks::AnyLeaves() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const auto& each) { return each.second.leaving; });
}

bool HealthChecks::AllWorkersStay() const {
  return plan_.workers > 1 &&
         std::none_of(processes_.begin(), processes_.end(),
                      [](const auto& each) {
                        return each.second.leaving &&
                               absl::StartsWith(each.second.task, "worker");
                      });
}

bool HealthChecks::AllAreAtWork() const {
  int holders = 0;
  // A chief that is gone may have been the one that workers told.
  nanoseconds since = holder_gone_;
  for (const auto& [number, process] : processes_) {
    if (HoldsJob(process.task)) {
      ++holders;
      since = std::max(since, process.started);
    }
  }
  return holders > plan_.ps && !AnyLeaves() &&
         workers_.size() == static_cast<size_t>(plan_.workers) &&
         std::all_of(
             workers_.begin(), workers_.end(),
             [since](const auto& each) { return each.second.taken > since; });
}

bool HealthChecks::InQuiet() const {
  return Now() - trouble_until_ >= kQuiet && AllAreAtWork();
}

void HealthChecks::OnPush(int process, uint64_t sequence) {
  const auto found = workers_.find(process);
  if (found != workers_.end()) {
    found->second.pushed = Now();
    found->second.next = std::max(found->second.next, sequence + 1);
    found->second.begun.try_emplace(sequence, Now());
  }
}

bool HealthChecks::MayBeFinished(const Worker& worker) const {
  if (plan_.script) {
    const auto pushes = of_slot_.find(worker.slot);
    return pushes != of_slot_.end() &&
           pushes->second + 2 > plan_.pushes_of_rank();
  }
  return (worker.next + 1) * static_cast<uint64_t>(plan_.workers) + restored_ >
         plan_.contributions();
}

absl::Status HealthChecks::OnGrant(int process, const Grant& grant) {
  const Sender& sender = grant.sender();
  // Its stream has ended, and with it the hold that came on it.
  if (const auto worker = workers_.find(process); worker != workers_.end()) {
    worker->second.hold_end = Now();
    worker->second.newest_at_hold = UINT64_MAX;
  }
  const Granted granted = {sender.history(), sender.slot(),
                           sender.generation()};
  const Granted before = std::exchange(
      granted_.try_emplace(process, granted).first->second, granted);
  if (before.history == granted.history && before.slot == granted.slot &&
      before.generation != granted.generation &&
      offered_.count(granted.slot) == 0) {  // I6
    return absl::InternalError(absl::StrCat(
        "a process of slot ", granted.slot, " had generation ",
        before.generation, " and was granted ", granted.generation));
  }
  return absl::OkStatus();
}

absl::Status HealthChecks::OnCommand(int process, const Command& command,
                                     uint64_t newest) {
  if (command.has_take_slot()) {
    granted_.erase(process);  // it leaves its slot, and may come back to it
    offered_.insert(command.take_slot());
  }
  const auto found = workers_.find(process);
  if (found == workers_.end()) {
    return absl::OkStatus();
  }
  Worker& worker = found->second;
  if (command.release() && worker.hold_end < worker.hold_begin) {
    worker.hold_end = Now();
  }
  if (!command.hold() || worker.hold_end < worker.hold_begin) {
    return absl::OkStatus();
  }
  const nanoseconds held = worker.hold_end - worker.hold_begin;
  const nanoseconds free = Now() - worker.hold_end;
  const bool in_vain = worker.newest_at_hold == newest;
  const bool looked_at =
      std::max({worker.since, chief_trouble_until_,
                processes_[process].slow_until}) < worker.hold_begin;
  worker.hold_begin = Now();
  worker.newest_at_hold = newest;
  const nanoseconds late =
      kMessagesOfHold * plan_.message_time() + kTurnsOfHold * plan_.pace;
  if (plan_.mode != Mode::kSync && looked_at && in_vain &&
      held > kLongHold + late && free < kPauses * (held - late)) {  // I4
    return absl::InternalError(
        absl::StrCat("the worker of slot ", worker.slot, " was held for ",
                     held / milliseconds(1), " ms, and is again after ",
                     free / milliseconds(1), " ms"));
  }
  return absl::OkStatus();
}

absl::Status HealthChecks::OnEnd(int process, int code) {
  const auto [task, started, started_when_done, leaving, slow_until] =
      Forget(process);
  if (code == kExitOk) {
    return absl::OkStatus();
  }
  if (code == kExitReplaced && --may_be_replaced_[task] < 0 &&
      absl::StartsWith(task, "worker")) {  // I2
    return absl::InternalError(
        absl::StrCat(task, " was replaced, and no process has its place"));
  }
  const nanoseconds calm = Now() - trouble_until_;
  // At a slow store the first start takes longer than others wait for it.
  const nanoseconds start = plan_.start_time();
  // A program of a user that was told to end does so at its next long wait.
  if (code != kExitReplaced && !leaving &&
      calm > plan_.lost_after + kEffectMax + start && Now() > start) {  // I1
    return absl::InternalError(
        absl::StrCat(task, " ended with ", code, " after ",
                     std::min(calm, Now()) / seconds(1), " s without trouble"));
  }
  if (code != kExitReplaced && started_when_done && !plan_.script &&
      trouble_until_ < started) {  // I3
    return absl::InternalError(absl::StrCat(
        task, " started when the job was done, and ended with ", code));
  }
  Affect(Now(), Whom::kAll);  // it may end others
  return absl::OkStatus();
}

absl::Status HealthChecks::CheckRate(bool store_is_slow) {
  if (store_is_slow) {
    store_was_slow_ = Now();
  }
  if (std::any_of(processes_.begin(), processes_.end(), [](const auto& each) {
        return absl::StartsWith(each.second.task, "chief");
      })) {
    chief_ran_ = Now();
  }
  for (auto& [process, worker] : workers_) {
    if (AnyLeaves() || worker.since <= hard_trouble_until_ || PsMayBeEmpty() ||
        worker.out_of_work) {
      worker.since = Now();
    }
    worker.may_be_finished = worker.may_be_finished || MayBeFinished(worker);
    if (worker.out_of_work || worker.may_be_finished) {
      one_was_away_ = Now();
    }
  }
  if (workers_.size() < static_cast<size_t>(plan_.workers)) {
    one_was_away_ = Now();
  }
  for (const auto& [process, worker] : workers_) {
    WEIR_RETURN_IF_ERROR(CheckWorker(worker));
  }
  return absl::OkStatus();
}

absl::Status HealthChecks::CheckWorker(const Worker& worker) const {
  const nanoseconds since =
      std::max({worker.pushed, worker.since, worker_trouble_until_});
  if (worker.may_be_finished) {
    return absl::OkStatus();
  }
  const nanoseconds hold = kObjectsOfHold * plan_.object_time();
  const nanoseconds push =
      kMessagesOfPush * plan_.message_time() + kTurnsOfPush * plan_.pace;
  const nanoseconds quick = std::max(since, store_was_slow_);
  // Without a chief a worker waits for the store only where a shard writes its
  // tables.
  const nanoseconds alone = std::max(plan_.table ? quick : since, chief_ran_);
  const nanoseconds idle = kIdleMaxWithoutChief +
                           (plan_.table ? hold : nanoseconds(0)) +
                           kStepsOfPush * (plan_.message_time() + plan_.pace);
  switch (plan_.mode) {
    case Mode::kAsync:
      WEIR_RETURN_IF_ERROR(CheckIdle(worker, alone, idle));
      return CheckIdle(worker, quick, kIdleMaxAlone + push + hold);
    case Mode::kStaleness:
      // The slowest one pushes first.
      WEIR_RETURN_IF_ERROR(CheckIdle(worker, std::max(alone, one_was_away_),
                                     kWaves * idle + plan_.batch_time));
      break;
    case Mode::kSync:
      break;
  }
  return CheckIdle(worker, std::max(quick, trouble_until_),
                   kIdleMax + push + hold);
}

absl::Status HealthChecks::CheckIdle(const Worker& worker, nanoseconds since,
                                     nanoseconds most) const {
  const nanoseconds idle = Now() - since;
  return idle <= most + plan_.batch_time
             ? absl::OkStatus()
             : absl::InternalError(absl::StrCat(  // I4
                   "the worker of slot ", worker.slot,
                   " has pushed nothing for ", idle / seconds(1), " s"));
}

// Sync: that all of them have brought.
uint64_t HealthChecks::StepsOfScripts() const {
  uint64_t steps = plan_.steps;
  for (int rank = 0; rank < plan_.workers; ++rank) {
    const auto found = of_slot_.find(static_cast<uint32_t>(rank));
    steps = std::min(steps, found == of_slot_.end() ? 0 : found->second);
  }
  return steps;
}

uint64_t HealthChecks::Receipts() const {
  uint64_t receipts = 0;
  for (const auto& [slot, done] : of_slot_) {
    receipts += done;
  }
  return receipts;
}

void HealthChecks::OnStop(nanoseconds until, bool everybody) {
  // A chief that only just begins to take over shards saves nothing. What a
  // worker has left on a part of the blocks another one finishes, but no
  // script, and not before it is lost.
  const nanoseconds trouble =
      plan_.script || everybody || plan_.lost_after > kBeforeStop
          ? trouble_until_
          : std::max(hard_trouble_until_, chief_trouble_until_);
  const bool quiet = Now() - trouble >= (AllAreAtWork() ? kQuiet : kBeforeStop);
  Trouble(until, Whom::kAll);  // it ends them all
  // What comes after the snapshot of a stop under way is not saved.
  const bool under_way = std::exchange(stop_under_way_, true);
  if (!quiet || under_way) {
    return;
  }
  to_save_ = Receipts();
  if (plan_.mode == Mode::kSync) {
    // A step without its last contribution is not saved.
    to_save_ = *to_save_ - *to_save_ % plan_.in_step;
    if (plan_.script) {
      to_save_ = StepsOfScripts() * plan_.in_step;
    }
  }
}

absl::Status HealthChecks::OnStopped(uint64_t saved) {
  const std::optional<uint64_t> to_save = std::exchange(to_save_, std::nullopt);
  if (to_save.has_value() && saved < *to_save) {  // I5
    return absl::InternalError(absl::StrCat("a stop has saved ", saved,
                                            " contributions of ", *to_save,
                                            " that had receipts"));
  }
  return absl::OkStatus();
}

}  // namespace weir::sim
