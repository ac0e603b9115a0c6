#include "server/chief/state/absence.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weir {
namespace {

constexpr double kSaySilentSeconds = 10.0;
// For a worker that ended to come again, and for one that has just got its slot
// to open its stream.
constexpr double kTakeAfterSeconds = 3.0;
// For a worker that was asked to take another one's slot: the contribution in
// flight, then the one that was torn.
constexpr double kTakeSeconds = 15.0;
// Longer than nearly any contribution takes.
constexpr double kSayStuckSeconds = 30.0;

}  // namespace

std::vector<int> Absence::Away() const {
  std::vector<int> away;
  for (int w = 0; w < facts_.roster.count(); ++w) {
    if (!facts_.roster.worker(w).connected() && !facts_.Done(w)) {
      away.push_back(w);
    }
  }
  return away;
}

bool Absence::StandsStill() const {
  return facts_.job->sync() &&
         facts_.SecondsSince(facts_.progress_ns) > kVersionWaitSeconds &&
         !Away().empty();
}

std::optional<int> Absence::Torn() const {
  for (int w = 0; w < facts_.roster.count(); ++w) {
    if (!facts_.roster.worker(w).connected() &&
        facts_.tracker.Marks(w).torn()) {
      return w;
    }
  }
  return std::nullopt;
}

std::string Absence::DescribeTorn() const {
  const std::optional<int> slot = Torn();
  if (!slot.has_value()) {
    return "";
  }
  return absl::StrCat("; ", facts_.WorkerName(*slot),
                      " ended inside contribution ",
                      facts_.tracker.NextSequenceMin(*slot),
                      ", which a part of the blocks lack");
}

bool Absence::IsThere(int slot) const {
  const Roster::Worker& worker = facts_.roster.worker(slot);
  return worker.connected() || worker.state == Roster::Worker::State::kWanted ||
         worker.state == Roster::Worker::State::kInRound ||
         facts_.SecondsSince(worker.absent_since_ns) < kTakeAfterSeconds;
}

bool Absence::IsTooLateToTake(const RegisterRequest& request) const {
  const auto slot = static_cast<int>(request.rank());
  const uint64_t holder = facts_.roster.worker(slot).process;
  return IsSubstitute(request) && holder != 0 && holder != request.process() &&
         IsThere(slot);
}

bool Absence::AskToTake(int slot) {
  if (facts_.job->workers_decide()) {
    return false;  // a program of the SDK has no data but its own
  }
  if (IsThere(slot) || (!asked_to_take_.empty() &&
                        facts_.SecondsSince(take_ns_) < kTakeSeconds)) {
    return true;
  }
  for (int w = 0; w < facts_.roster.count(); ++w) {
    const Roster::Worker& worker = facts_.roster.worker(w);
    // I1
    if (!worker.connected() || worker.told ||
        asked_to_take_.size() >= kTakesMax ||
        !asked_to_take_.insert(worker.stream).second) {
      continue;
    }
    take_ns_ = facts_.now_ns();
    facts_.Say(facts_.WorkerName(w), " is to finish contribution ",
               facts_.tracker.NextSequenceMin(slot), " of ",
               facts_.WorkerName(slot), ", which ended inside it");
    Command command;
    command.set_take_slot(static_cast<uint32_t>(slot));
    const Capability offer =
        CapabilityOf(facts_.options.chief_secret, /*history=*/0,
                     command.take_slot(), /*generation=*/0);
    command.set_offer_high(offer.high);
    command.set_offer_low(offer.low);
    facts_.Do(SendCommand{worker.stream, command});
    return true;
  }
  return false;
}

bool Absence::FinishTorn() {
  for (int w = 0; w < facts_.roster.count(); ++w) {
    const Roster::Worker& worker = facts_.roster.worker(w);
    if (!worker.retired && facts_.tracker.Marks(w).torn() &&
        (worker.connected() || AskToTake(w))) {
      return true;
    }
  }
  if (facts_.job->workers_decide()) {
    return false;  // only its own program could, and it may yet come back
  }
  for (const int w : Away()) {
    if (facts_.roster.worker(w).retired) {
      continue;
    }
    facts_.Warn(
        facts_.WorkerName(w), " ended while contribution ",
        facts_.tracker.NextSequenceMin(w),
        " was on its way: the checkpoint has it on a part of the blocks");
    facts_.roster.SetRetired(w, true);
  }
  return false;
}

absl::Status Absence::Watch(bool held, bool kept_waiting) {
  const std::vector<int> away = Away();
  std::vector<std::string> missing;
  for (const int w : away) {
    const Roster::Worker& worker = facts_.roster.worker(w);
    missing.push_back(facts_.WorkerName(w));
    const double waited = facts_.SecondsSince(worker.absent_since_ns);
    if (facts_.TimeToSay(absl::StrCat("worker ", w), 10.0) && waited >= 10.0) {
      facts_.Say("waiting for ", missing.back(), ", ", static_cast<int>(waited),
                 " s");
    }
  }
  if (facts_.phase == JobFacts::Phase::kTraining) {
    WatchShards();
    WatchStuck(held);
  }
  if (kept_waiting) {
    // Workers that stand still because they were told to are not stuck.
    facts_.progress_ns = facts_.now_ns();
  }
  // Bytes count as progress on a slow link, but not while a worker is missing:
  // those who wait for it may send theirs again and again.
  int64_t begin_ns = facts_.progress_ns;
  std::string waiting;
  if (missing.empty()) {
    begin_ns = std::max(begin_ns, facts_.moved_ns);
  } else {
    waiting = absl::StrCat(": waiting for ", absl::StrJoin(missing, ", "));
  }
  // A program of the SDK may do other things between its pushes.
  const bool may_rest = facts_.job->workers_decide() && missing.empty();
  const double wait = facts_.options.worker_wait;
  if (facts_.phase <= JobFacts::Phase::kTraining && !may_rest &&
      facts_.SecondsSince(begin_ns) > wait) {
    if (facts_.had_finished && !away.empty()) {
      facts_.Say("not waiting any longer for ", absl::StrJoin(missing, ", "),
                 ": all had finished at ", facts_.checkpoint);
      for (const int w : away) {
        facts_.roster.SetRetired(w, true);
      }
      facts_.progress_ns = facts_.now_ns();
      return absl::OkStatus();
    }
    return absl::UnavailableError(
        absl::StrCat("no progress for ", static_cast<int>(wait), " s at ",
                     facts_.job->unit(), facts_.step, waiting));
  }
  return absl::OkStatus();
}

void Absence::WatchShards() {
  if (const auto shard = facts_.tracker.Unreachable(facts_.now_ns());
      shard.has_value() && facts_.TimeToSay("unreachable", kSaySilentSeconds)) {
    facts_.Warn(facts_.tracker.Name(*shard), " does not answer the chief (",
                facts_.tracker.last_error(*shard).message(),
                "), but the workers reach it: checkpoints wait");
  }
}

void Absence::WatchStuck(bool held) {
  seen_.resize(static_cast<size_t>(facts_.roster.count()),
               {0, facts_.now_ns()});
  for (int w = 0; w < facts_.roster.count(); ++w) {
    const Roster::Worker& worker = facts_.roster.worker(w);
    auto& [sequence, since_ns] = seen_[static_cast<size_t>(w)];
    // In sync only the worker that is behind is worth a line: the others wait
    // for it.
    const bool ahead =
        facts_.job->sync() && facts_.job->StepOf(w, worker) > facts_.step;
    if (!worker.connected() || facts_.Done(w) || held || ahead ||
        worker.next_sequence != sequence) {
      sequence = worker.next_sequence;
      since_ns = facts_.now_ns();
      continue;
    }
    const double waited = facts_.SecondsSince(since_ns);
    if (waited > kSayStuckSeconds &&
        facts_.TimeToSay(absl::StrCat("stuck ", w), kSayStuckSeconds)) {
      facts_.Warn(facts_.WorkerName(w),
                  " is connected, but has been at contribution ",
                  worker.next_sequence, " for ", static_cast<int>(waited),
                  " s; if it is stuck, start it again");
    }
  }
}

}  // namespace weir
