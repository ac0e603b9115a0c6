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

// So long after trouble it may still end a task: the waits of a worker and a
// chief for each other are shorter, and a start reads and writes fewer objects.
constexpr auto kEffectMax = seconds(75);
constexpr int kObjectsOfStart = 60;
// In quiet a worker that has work pushes something in so long. A checkpoint
// keeps it waiting for some objects.
constexpr auto kIdleMax = seconds(30);
constexpr int kObjectsOfHold = 20;
// The same in async, where it waits for no other worker, and not counted what
// the slowest messages and turns take.
constexpr auto kIdleMaxAlone = seconds(12);
constexpr int kMessagesOfPush = 20;
constexpr int kTurnsOfPush = 20;
// After so long a peer that does not answer counts as away.
constexpr auto kSilentMax = seconds(21);
// A hold takes more than that where something is wrong.
constexpr auto kLongHold = seconds(3);
// And the pause behind it is no shorter than this part of it.
constexpr int kPauses = 4;
constexpr int kMessagesOfHold = 14;
constexpr int kTurnsOfHold = 20;
// No stop is looked at that begins so soon after trouble.
constexpr auto kBeforeStop = seconds(10);

}  // namespace

void HealthChecks::Trouble(nanoseconds until, Whom whom) {
  Affect(until, whom);
  if (whom != Whom::kWorker) {
    to_save_.reset();
  }
}

void HealthChecks::Affect(nanoseconds until, Whom whom) {
  trouble_until_ = std::max(trouble_until_, until);
  if (whom == Whom::kSilentChief) {
    hard_trouble_until_ =
        std::max(hard_trouble_until_, std::min(until, Now() + kSilentMax));
    whom = Whom::kChief;
  }
  if (whom == Whom::kWorker) {
    worker_trouble_until_ = std::max(worker_trouble_until_, until);
  } else if (whom == Whom::kChief) {
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
  // What a ps takes with it each script learns when it joins again.
  if (plan_.script && absl::StartsWith(known.mapped().task, "ps")) {
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
    worker.may_be_finished = false;
    worker.since = Now();
  }
  worker.told = Now();
  worker.next = std::max(worker.next, progress.next_sequence());
  worker.out_of_work = progress.out_of_work();
  if (!plan_.script) {
    of_slot_[worker.slot] = progress.next_sequence();
  }
}

bool HealthChecks::AnyLeaves() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const auto& each) { return each.second.leaving; });
}

bool HealthChecks::AllWorkInPeace() const {
  return workers_.size() == static_cast<size_t>(plan_.workers) &&
         std::all_of(workers_.begin(), workers_.end(),
                     [this](const auto& each) {
                       return std::min(each.second.pushed, each.second.told) >
                              trouble_until_;
                     }) &&
         !AnyLeaves();
}

void HealthChecks::OnPush(int process, uint64_t sequence) {
  const auto found = workers_.find(process);
  if (found != workers_.end()) {
    found->second.pushed = Now();
    found->second.next = std::max(found->second.next, sequence + 1);
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
  const auto [known, fresh] = granted_.try_emplace(
      {sender.history(), sender.slot(), process}, sender.generation());
  if (!fresh && known->second != sender.generation()) {  // I6
    return absl::InternalError(
        absl::StrCat("a process of slot ", sender.slot(), " had generation ",
                     known->second, " and was granted ", sender.generation()));
  }
  return absl::OkStatus();
}

absl::Status HealthChecks::OnCommand(int process, const Command& command,
                                     uint64_t newest) {
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
      std::max(worker.since, chief_trouble_until_) < worker.hold_begin;
  worker.hold_begin = Now();
  worker.newest_at_hold = newest;
  const nanoseconds usual =
      kLongHold + kMessagesOfHold * plan_.network.delay_max +
      kTurnsOfHold * plan_.pace + kObjectsOfHold * plan_.object_time();
  if (plan_.mode == Mode::kAsync && looked_at && in_vain && held > usual &&
      kPauses * free < held) {  // I4
    return absl::InternalError(absl::StrCat(
        "the worker of slot ", worker.slot, " was held for ", held / seconds(1),
        " s, and is again after ", free / milliseconds(1), " ms"));
  }
  return absl::OkStatus();
}

absl::Status HealthChecks::OnEnd(int process, int code) {
  const auto [task, started, started_when_done, leaving] = Forget(process);
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
  const nanoseconds start = kObjectsOfStart * plan_.object_time();
  if (code != kExitReplaced && calm > kEffectMax + start &&
      Now() > start) {  // I1
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
  const bool alone = plan_.mode == Mode::kAsync;
  const nanoseconds trouble = alone ? hard_trouble_until_ : trouble_until_;
  const bool none = store_is_slow || AnyLeaves();
  for (auto& [process, worker] : workers_) {
    if (none || worker.since <= trouble || worker.out_of_work) {
      worker.since = Now();
    }
    worker.may_be_finished = worker.may_be_finished || MayBeFinished(worker);
    WEIR_RETURN_IF_ERROR(CheckWorker(worker));
  }
  return absl::OkStatus();
}

absl::Status HealthChecks::CheckWorker(const Worker& worker) const {
  const nanoseconds idle =
      Now() - std::max({worker.pushed, worker.since, worker_trouble_until_});
  nanoseconds most = kIdleMax;
  if (plan_.mode == Mode::kAsync) {
    most = kIdleMaxAlone + kMessagesOfPush * plan_.network.delay_max +
           kTurnsOfPush * plan_.pace;
  }
  if (idle > most + plan_.batch_time + kObjectsOfHold * plan_.object_time() &&
      !worker.may_be_finished) {  // I4
    return absl::InternalError(absl::StrCat("the worker of slot ", worker.slot,
                                            " has pushed nothing for ",
                                            idle / seconds(1), " s"));
  }
  return absl::OkStatus();
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

void HealthChecks::OnStop(nanoseconds until) {
  // A chief that only just begins to take over shards saves nothing. What a
  // worker has left on a part of the blocks another one finishes, but no
  // script.
  const nanoseconds trouble =
      plan_.script ? trouble_until_
                   : std::max(hard_trouble_until_, chief_trouble_until_);
  const bool quiet = Now() - trouble >= kBeforeStop;
  Trouble(until, Whom::kAll);  // it ends them all
  if (!quiet) {
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
