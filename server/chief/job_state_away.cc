// JobState while a worker is away: who waits for it, and what is saved without
// it.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/plant.h"
#include "server/chief/job_state.h"

namespace weir {
namespace {

// A version that does not come is given up after this.
constexpr double kVersionWaitSeconds = 5.0;
// Workers that wait for the absent one's contribution never hold; the others
// do soon.
constexpr double kAwayHoldSeconds = 1.0;
constexpr double kSayFreezeSeconds = 60.0;
constexpr double kSaySilentSeconds = 10.0;
// For a worker that ended to come again, and for one that has just got its slot
// to open its stream.
constexpr double kTakeAfterSeconds = 3.0;
// For a worker that was asked to take another one's slot: the contribution in
// flight, then the one that was torn.
constexpr double kTakeSeconds = 15.0;
constexpr size_t kTakesMax = 3;
// For a contribution that is being finished, while nobody is held.
constexpr int64_t kFinishPauseNs = 500'000'000;
// Longer than nearly any contribution takes.
constexpr double kSayStuckSeconds = 30.0;

}  // namespace

bool JobState::SomebodyIsAway() const {
  for (int w = 0; w < roster_.count(); ++w) {
    if (!roster_.worker(w).connected() && !Done(w)) {
      return true;
    }
  }
  return false;
}

std::optional<int> JobState::TornAndAway() const {
  for (int w = 0; w < roster_.count(); ++w) {
    if (!roster_.worker(w).connected() && tracker_.Marks(w).torn()) {
      return w;
    }
  }
  return std::nullopt;
}

std::string JobState::DescribeTorn() const {
  const std::optional<int> slot = TornAndAway();
  if (!slot.has_value()) {
    return "";
  }
  return absl::StrCat("; ", WorkerName(*slot), " ended inside contribution ",
                      tracker_.NextSequenceMin(*slot),
                      ", which a part of the blocks lack");
}

bool JobState::StandsStill() const {
  return sync() && SecondsSince(progress_ns_) > kVersionWaitSeconds &&
         SomebodyIsAway();
}

double JobState::HoldWait() const {
  if (sync() && SomebodyIsAway()) {
    return std::min(kAwayHoldSeconds, options_.hold_wait);
  }
  return options_.hold_wait;
}

void JobState::WatchProgress() {
  std::vector<std::string> missing;
  for (int w = 0; w < roster_.count(); ++w) {
    const Roster::Worker& worker = roster_.worker(w);
    if (worker.connected() || Done(w)) {
      continue;
    }
    missing.push_back(WorkerName(w));
    const double waited = SecondsSince(worker.absent_since_ns);
    if (TimeToSay(absl::StrCat("worker ", w), 10.0) && waited >= 10.0) {
      Say(absl::StrCat("waiting for ", WorkerName(w), ", ",
                       static_cast<int>(waited), " s"));
    }
  }
  if (KeepsWorkersWaiting()) {
    // Workers that stand still because they were told to are not stuck.
    progress_ns_ = now_ns_;
  }
  // Bytes count as progress on a slow link, but not while a worker is missing:
  // those who wait for it may send theirs again and again.
  int64_t begin_ns = progress_ns_;
  std::string waiting;
  const char* unit = sync() ? "step " : "contribution ";
  if (missing.empty()) {
    begin_ns = std::max(progress_ns_, moved_ns_);
  } else {
    waiting = absl::StrCat(": waiting for ", absl::StrJoin(missing, ", "));
  }
  // A program of the SDK may do other things between its pushes.
  if (phase_ <= Phase::kTraining && (!options_.sdk_job || !missing.empty()) &&
      SecondsSince(begin_ns) > options_.worker_wait) {
    Fail(absl::UnavailableError(
        absl::StrCat("no progress for ", static_cast<int>(options_.worker_wait),
                     " s at ", unit, step_, waiting)));
  }
}

void JobState::WatchEach() {
  if (phase_ != Phase::kTraining) {
    return;
  }
  if (const auto shard = tracker_.Unreachable(now_ns_);
      shard.has_value() && TimeToSay("unreachable", kSaySilentSeconds)) {
    Say(absl::StrCat(tracker_.Name(*shard), " does not answer the chief (",
                     tracker_.last_error(*shard).message(),
                     "), but the workers reach it: checkpoints wait"),
        /*warning=*/true);
  }
  seen_.resize(static_cast<size_t>(roster_.count()), {0, now_ns_});
  for (int w = 0; w < roster_.count(); ++w) {
    const Roster::Worker& worker = roster_.worker(w);
    auto& [sequence, since_ns] = seen_[static_cast<size_t>(w)];
    // In sync only the worker that is behind is worth a line: the others wait
    // for it.
    const uint64_t done =
        start_.declaration().base_version() +
        worker.next_sequence / std::max(ContributionsPerStep(w), uint64_t{1});
    if (!worker.connected() || Done(w) || hold_sent_ ||
        worker.next_sequence != sequence || (sync() && done > step_)) {
      sequence = worker.next_sequence;
      since_ns = now_ns_;
      continue;
    }
    const double waited = SecondsSince(since_ns);
    if (waited > kSayStuckSeconds &&
        TimeToSay(absl::StrCat("stuck ", w), kSayStuckSeconds)) {
      Say(absl::StrCat(WorkerName(w),
                       " is connected, but has been at contribution ",
                       worker.next_sequence, " for ", static_cast<int>(waited),
                       " s; if it is stuck, start it again"),
          /*warning=*/true);
    }
  }
}

// Writing the rows of tables takes as long as it takes: a shard that answers
// Hello is at it, and the Snapshot call has a deadline of its own.
bool JobState::KeepsWorkersWaiting() {
  const bool frozen_soon =
      cycle_.state() == CheckpointCycle::State::kPreparing ||
      cycle_.state() == CheckpointCycle::State::kFreezing;
  if (!frozen_soon || (sync() && cycle_.step() > step_) ||
      Planted("watch.counts_holds")) {
    return false;
  }
  if (SecondsSince(cycle_.begun_ns()) > kSayFreezeSeconds &&
      TimeToSay("freeze", kSayFreezeSeconds)) {
    Say(absl::StrCat("the checkpoint at ", cycle_.step(),
                     " keeps the workers waiting for ",
                     static_cast<int>(SecondsSince(cycle_.begun_ns())),
                     " s: the shards write their tables"));
  }
  return true;
}

void JobState::DropHopelessVersion() {
  if (!sync() || phase_ != Phase::kTraining || cycle_.step() <= step_ ||
      cycle_.state() != CheckpointCycle::State::kFreezing ||
      Planted("stop.version_ahead")) {
    return;
  }
  const bool stop = stop_requested_ && cycle_.begun_ns() < stop_ns_;
  const bool hopeless = StandsStill() && checkpoint_step_ != step_ &&
                        SecondsSince(cycle_.begun_ns()) > kVersionWaitSeconds;
  if (stop || hopeless) {
    cycle_.Abandon(&actions_);
    cycle_.TakeOutcome();  // it says nothing new, and the next try begins now
  }
}

bool JobState::AskToTake(int slot) {
  if (options_.sdk_job) {
    return false;  // a program of the SDK has no data but its own
  }
  const Roster::Worker& away = roster_.worker(slot);
  const bool comes = away.state == Roster::Worker::State::kWanted ||
                     away.state == Roster::Worker::State::kInRound ||
                     SecondsSince(away.absent_since_ns) < kTakeAfterSeconds;
  if (comes ||
      (!asked_to_take_.empty() && SecondsSince(take_ns_) < kTakeSeconds)) {
    return true;
  }
  for (int w = 0; w < roster_.count(); ++w) {
    const Roster::Worker& worker = roster_.worker(w);
    // Each is asked once, and few of them: one that was asked and did not take
    // the slot may be stuck itself.
    if (!worker.connected() || worker.told ||
        asked_to_take_.size() >= kTakesMax ||
        !asked_to_take_.insert(worker.stream).second) {
      continue;
    }
    take_ns_ = now_ns_;
    Say(absl::StrCat(WorkerName(w), " is to finish contribution ",
                     tracker_.NextSequenceMin(slot), " of ", WorkerName(slot),
                     ", which ended inside it"));
    Command command;
    command.set_take_slot(static_cast<uint32_t>(slot));
    actions_.push_back(SendCommand{worker.stream, command});
    return true;
  }
  return false;
}

// A shard was past the version. In a stop the next try begins at once, since
// the workers hold. When the same version is refused again, some blocks have
// left it and others wait for a contribution whose worker ended while it was
// sent. A worker that lives is asked to finish it. Without one the slot is
// retired, so that the blocks that are behind publish the next version without
// that contribution: the state of those that are ahead cannot go back.
void JobState::OnPassed() {
  schedule_->OnPassed();
  if (StandsStill()) {
    retry_ns_ = now_ns_ + static_cast<int64_t>(kVersionWaitSeconds * 1e9);
  }
  if (!stop_requested_ || phase_ != Phase::kTraining || options_.sdk_job) {
    return;
  }
  retry_ns_ = 0;
  if (passed_step_ != step_) {
    passed_step_ = step_;
    return;
  }
  for (int w = 0; w < roster_.count(); ++w) {
    const Roster::Worker& worker = roster_.worker(w);
    if (!worker.retired && tracker_.Marks(w).torn() &&
        (worker.connected() || AskToTake(w))) {
      retry_ns_ = now_ns_ + kFinishPauseNs;  // a hold would stop it
      return;
    }
  }
  for (int w = 0; w < roster_.count(); ++w) {
    if (roster_.worker(w).connected() || Done(w) || roster_.worker(w).retired) {
      continue;
    }
    Say(absl::StrCat(WorkerName(w), " ended while contribution ",
                     tracker_.NextSequenceMin(w),
                     " was on its way: the checkpoint has it on a part of the "
                     "blocks"),
        /*warning=*/true);
    roster_.SetRetired(w, true);
  }
}

}  // namespace weir
