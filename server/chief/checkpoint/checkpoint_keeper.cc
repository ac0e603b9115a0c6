#include "server/chief/checkpoint/checkpoint_keeper.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/plant.h"
#include "common/base/status.h"

namespace weir {
namespace {

using State = CheckpointCycle::State;

constexpr int64_t kSecondNs = 1'000'000'000;
// Workers that were held in vain work for so many times as long, at least.
constexpr int64_t kTimesOfHold = 10;
// The wait after the first failure. It doubles after each, up to kRetryMaxNs.
constexpr int64_t kRetryNs = kSecondNs;
constexpr int64_t kRetryMaxNs = 10 * kSecondNs;
// Workers that wait for the absent one's contribution never hold; the others
// do soon.
constexpr double kAwayHoldSeconds = 1.0;
// For a contribution that is being finished, while nobody is held.
constexpr int64_t kFinishPauseNs = kSecondNs / 2;
constexpr double kSayFreezeSeconds = 60.0;
// A line about a slow checkpoint comes this often.
constexpr double kSaySlowSeconds = 10.0;

}  // namespace

CheckpointKeeper::CheckpointKeeper(JobFacts* facts, Absence* absence)
    : facts_(*facts), absence_(*absence), cycle_(facts) {}

void CheckpointKeeper::BeginTraining() {
  const Checkpoint& asked = facts_.options.spec.checkpoint();
  schedule_.emplace(
      CheckpointSchedule::Options{asked.every_steps(), asked.every_seconds(),
                                  facts_.job->sync()},
      facts_.step, facts_.now_ns());
}

void CheckpointKeeper::Hurry() {
  torn_since_ns_ = retry_ns_ = 0;
  tries_failed_ = 0;
}

// ------------------------------------------------------------ when one begins

std::optional<uint64_t> CheckpointKeeper::Due() {
  if (facts_.now_ns() < retry_ns_) {
    return std::nullopt;
  }
  if (!training()) {
    return facts_.step_count;
  }
  if (stopping()) {
    if (facts_.job->sync() && Planted("stop.version_ahead")) {
      return schedule_->VersionAhead(facts_.step, facts_.step_count);
    }
    return facts_.step;
  }
  if (torn_since_ns_ != 0) {
    return facts_.step;  // an earlier try found a torn contribution: overdue
  }
  std::optional<uint64_t> due = schedule_->Due(facts_.step, facts_.now_ns());
  if (due.has_value() && absence_.StandsStill()) {
    // No version ahead will come: take the one that is there.
    due = facts_.step;
    if (facts_.checkpoint_step == facts_.step) {
      due.reset();
    }
  }
  if (due.has_value() && *due >= facts_.step_count) {
    due.reset();  // the checkpoint at the end comes by itself
  }
  return due;
}

// A contribution of an absent worker is applied in part: only its replacement
// can finish it, and a hold would stop that for nothing.
bool CheckpointKeeper::WaitsForTornWorker() {
  const std::optional<int> slot = absence_.Torn();
  if (!slot.has_value()) {
    return false;
  }
  if (torn_since_ns_ == 0) {
    torn_since_ns_ = facts_.now_ns();
  }
  if (facts_.TimeToSay("torn", 5.0)) {
    facts_.Say("the checkpoint waits for ", facts_.WorkerName(*slot),
               ", which ended inside contribution ",
               facts_.tracker.NextSequenceMin(*slot), ", ",
               static_cast<int>(facts_.SecondsSince(torn_since_ns_)), " s of ",
               facts_.options.torn_wait, " s: start that worker again");
  }
  if (stopping()) {
    absence_.AskToTake(*slot);
  }
  return true;
}

void CheckpointKeeper::Begin() {
  if (facts_.cutting) {
    return;  // its directory would come behind that, and workers wait for it
  }
  if (!training() && facts_.checkpoint_step == facts_.step_count) {
    finished_ = true;  // it is there already
    return;
  }
  const std::optional<uint64_t> due = Due();
  if (!due.has_value() ||
      (!wanted() && facts_.tracker.Unreachable(facts_.now_ns()).has_value())) {
    return;  // a hold would stop the workers, which do reach the shard
  }
  if (facts_.job->sync()) {
    // In a stop the workers are leaving, so a version ahead may never come.
    if (stopping() && training() && !Planted("stop.version_ahead")) {
      cycle_.BeginAtNewest();
    } else {
      cycle_.BeginAtVersion(*due);
    }
  } else if (!WaitsForTornWorker()) {
    // Nobody has work in the last phase, so there is nobody to hold.
    cycle_.BeginFreeze(training());
  } else if (!wanted() &&
             facts_.SecondsSince(torn_since_ns_) > facts_.options.torn_wait) {
    facts_.Warn("gave up the checkpoint at ", facts_.step,
                ": no replacement came");
    torn_since_ns_ = 0;
    schedule_->OnTried(facts_.step, facts_.now_ns());
  }
  marks_tickets_.clear();
}

// -------------------------------------------------------------- its way there

absl::Status CheckpointKeeper::Advance() {
  // A stop gives up on freezing after a while, since whoever asked for it may
  // kill us soon. What is frozen is whole, and its files are waited for.
  if (training() && stopping() && cycle_.state() < State::kWriting &&
      cycle_.state() != State::kPreparing && !facts_.cutting &&
      facts_.SecondsSince(facts_.stop_ns) > facts_.options.torn_wait) {
    return absl::CancelledError(
        absl::StrCat(*facts_.stop, ": stopped without a checkpoint of step ",
                     facts_.step, ", the newest is ",
                     facts_.checkpoint.empty() ? "none" : facts_.checkpoint,
                     absence_.DescribeTorn()));
  }
  DropHopelessVersion();
  if (cycle_.idle()) {
    Begin();
  }
  // A worker that does not hold in time leaves a torn contribution at most, and
  // then the marks say so.
  if (cycle_.state() == State::kHolding && hold_sent_ &&
      (facts_.roster.AllHold() ||
       facts_.SecondsSince(cycle_.begun_ns()) > HoldWait())) {
    cycle_.OnHeld();
  }
  CheckMarks();
  if (cycle_.state() == State::kReady) {
    WEIR_RETURN_IF_ERROR(cycle_.Commit());
  }
  HoldOrRelease();
  return absl::OkStatus();
}

double CheckpointKeeper::HoldWait() const {
  const double wait = facts_.options.hold_wait;
  if (facts_.job->sync() && !absence_.Away().empty()) {
    return std::min(kAwayHoldSeconds, wait);
  }
  return wait;
}

void CheckpointKeeper::CheckMarks() {
  if (cycle_.state() != State::kChecking) {
    return;
  }
  if (marks_tickets_.empty()) {
    // Answers to earlier Hellos may be from before the hold.
    marks_tickets_ = facts_.AskAll();
  } else if (facts_.AllFresh(marks_tickets_)) {
    marks_tickets_.clear();
    std::vector<int64_t> next;
    bool torn = false;
    for (int w = 0; w < facts_.roster.count(); ++w) {
      const SlotMarks marks = facts_.tracker.Marks(w);
      next.push_back(static_cast<int64_t>(marks.next_sequence()));
      torn = torn || marks.torn();
    }
    facts_.Count();
    if (stopping() && facts_.checkpoint_step == facts_.step) {
      finished_ = true;  // nothing was done since the last one
      return;
    }
    cycle_.OnMarks(torn, std::move(next));
  } else if (!wanted() &&
             facts_.tracker.Unreachable(facts_.now_ns()).has_value()) {
    // The workers hold for marks that do not come. They do reach the shard, so
    // this try is given up as if it were torn, and they go on.
    cycle_.OnMarks(/*torn=*/true, {});
  }
}

void CheckpointKeeper::HoldOrRelease() {
  // I1
  const bool hold =
      cycle_.wants_hold() || (hold_sent_ && stopping() &&
                              ((finished_ && training()) || !cycle_.idle()));
  if (hold == hold_sent_) {
    return;
  }
  hold_sent_ = hold;
  Command command;
  if (hold_sent_) {
    hold_ns_ = facts_.now_ns();
    command.set_hold(true);
  } else {
    held_ns_ = facts_.now_ns() - hold_ns_;
    command.set_release(true);
  }
  facts_.Broadcast(command);
}

void CheckpointKeeper::DropHopelessVersion() {
  if (!facts_.job->sync() || !training() || cycle_.step() <= facts_.step ||
      cycle_.state() != State::kFreezing || Planted("stop.version_ahead")) {
    return;
  }
  const bool stop = stopping() && cycle_.begun_ns() < facts_.stop_ns;
  const bool hopeless =
      absence_.StandsStill() && facts_.checkpoint_step != facts_.step &&
      facts_.SecondsSince(cycle_.begun_ns()) > Absence::kVersionWaitSeconds;
  if (stop || hopeless) {
    cycle_.Abandon();
    cycle_.TakeOutcome();  // it says nothing new, and the next try begins now
  }
}

// -------------------------------------------------------- and what came of it

absl::Status CheckpointKeeper::TakeOutcome() {
  const auto outcome = cycle_.TakeOutcome();
  if (!outcome.has_value()) {
    return absl::OkStatus();
  }
  switch (outcome->result) {
    case CheckpointCycle::Result::kTorn:
      OnTorn();
      break;
    case CheckpointCycle::Result::kPassed:
      OnPassed();
      break;
    case CheckpointCycle::Result::kAbandoned:
      break;
    case CheckpointCycle::Result::kCommitted:
      OnCommittedOutcome(*outcome);
      break;
    case CheckpointCycle::Result::kFailed:
      return OnFailed(*outcome);
  }
  return absl::OkStatus();
}

void CheckpointKeeper::OnTorn() {
  if (torn_since_ns_ == 0) {
    torn_since_ns_ = facts_.now_ns();
  }
  // In a stop the workers have nothing else to do.
  if (wanted() || Planted("checkpoint.torn_retries_soon")) {
    retry_ns_ = facts_.now_ns() + kSecondNs;
  } else {
    LetWork();
  }
}

// One worker that is slow to hold, or a store that fails, must not stop the
// workers for most of the time.
void CheckpointKeeper::LetWork() {
  const int64_t held_ns =
      hold_sent_ ? facts_.now_ns() - hold_ns_ : std::exchange(held_ns_, 0);
  retry_ns_ = facts_.now_ns() + std::max(kSecondNs, kTimesOfHold * held_ns);
}

// A shard was past the version. In a stop the next try begins at once, since
// the workers hold. When the same version is refused again, some blocks have
// left it and others wait for a contribution whose worker ended while it was
// sent. A worker that lives is asked to finish it.
void CheckpointKeeper::OnPassed() {
  schedule_->OnPassed();
  if (absence_.StandsStill()) {
    retry_ns_ = facts_.now_ns() +
                static_cast<int64_t>(Absence::kVersionWaitSeconds * 1e9);
  }
  if (!stopping() || !training()) {
    return;
  }
  if (!facts_.job->workers_decide()) {
    retry_ns_ = 0;
  }
  if (passed_step_ != facts_.step) {
    passed_step_ = facts_.step;
  } else if (absence_.FinishTorn()) {
    retry_ns_ = facts_.now_ns() + kFinishPauseNs;  // a hold would stop it
  }
}

void CheckpointKeeper::OnCommittedOutcome(
    const CheckpointCycle::Outcome& outcome) {
  facts_.Say("checkpoint ", outcome.name, " is committed");
  facts_.reporter.CheckpointCommitted(
      outcome.name, static_cast<double>(outcome.bytes),
      static_cast<double>(facts_.now_ns() - cycle_.begun_ns()) / 1e9,
      facts_.now_ns());
  facts_.checkpoint = outcome.name;
  facts_.checkpoint_step = outcome.step;
  schedule_->OnTried(outcome.step, facts_.now_ns());
  Hurry();
  // A checkpoint that began before the stop may lack what came after it. Begin
  // sees whether it was the last one of the job.
  finished_ = stopping() && training() && cycle_.begun_ns() >= facts_.stop_ns;
}

absl::Status CheckpointKeeper::OnFailed(
    const CheckpointCycle::Outcome& outcome) {
  ++tries_failed_;
  facts_.reporter.CheckpointFailed();
  const absl::Status status = Annotate(
      outcome.status, absl::StrCat("checkpoint ", outcome.name, " failed"));
  if (absl::IsPermissionDenied(status)) {
    return status;  // another chief goes on with the job
  }
  if (!wanted()) {
    torn_since_ns_ = 0;  // what was overdue has had its try
    LetWork();
    schedule_->OnTried(std::max(outcome.step, facts_.step), facts_.now_ns());
    facts_.Warn(status.message(), "; the job goes on");
    return absl::OkStatus();
  }
  if (Planted("checkpoint.last_gives_up") && tries_failed_ >= 3) {
    return status;
  }
  // I2, also where the store refuses the keys: they, the clock or the store's
  // policy can be mended. A ps that refuses the chief does so at its next
  // Hello, too, and that ends the job. The shift is bounded, since the number
  // of failures is not.
  const int64_t wait_ns =
      std::min(kRetryNs << std::min(tries_failed_ - 1, 10), kRetryMaxNs);
  retry_ns_ = facts_.now_ns() + wait_ns;
  if (stopping()) {
    facts_.stop_ns = facts_.now_ns();  // the next try may freeze as long
  }
  facts_.Warn(status.message(),
              "; the result is safe in the memory of the ps: trying again in ",
              wait_ns / kSecondNs, " s, until it is written or a ",
              stopping() ? "second " : "second of two ",
              "signal ends the chief without it");
  return absl::OkStatus();
}

// ------------------------------------------------------------------- watching

void CheckpointKeeper::Tick() {
  if (schedule_.has_value()) {
    schedule_->Observe(facts_.step, facts_.now_ns());
  }
  const std::string waits_for = cycle_.WaitsFor();
  const double taken = facts_.SecondsSince(cycle_.begun_ns());
  if (!waits_for.empty() && taken >= kSaySlowSeconds &&
      facts_.TimeToSay("slow checkpoint", kSaySlowSeconds)) {
    facts_.Warn("the checkpoint of step ", cycle_.step(), " has taken ",
                static_cast<int>(taken), " s and waits for ", waits_for,
                ": does the disk of the work directory answer?");
  }
}

// Writing the rows of tables takes as long as it takes: a shard that answers
// Hello is at it, and the Snapshot call has a deadline of its own.
bool CheckpointKeeper::KeepsWorkersWaiting() {
  const bool frozen_soon =
      cycle_.state() == State::kPreparing || cycle_.state() == State::kFreezing;
  if (!frozen_soon || (facts_.job->sync() && cycle_.step() > facts_.step) ||
      Planted("watch.counts_holds")) {
    return false;
  }
  const double taken = facts_.SecondsSince(cycle_.begun_ns());
  if (taken > kSayFreezeSeconds &&
      facts_.TimeToSay("freeze", kSayFreezeSeconds)) {
    facts_.Say("the checkpoint at ", cycle_.step(),
               " keeps the workers waiting for ", static_cast<int>(taken),
               " s: the shards write their tables");
  }
  return true;
}

}  // namespace weir
