// JobState's checkpoints: when one begins, and what its outcome means.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "server/chief/job_state.h"

namespace weir {
namespace {

constexpr int64_t kRetryCheckpointNs = 1'000'000'000;
constexpr int64_t kTornRetryTimes = 10;  // what the hold took

}  // namespace

std::optional<uint64_t> JobState::DueCheckpoint() {
  if (now_ns_ < retry_ns_) {
    return std::nullopt;
  }
  if (phase_ == Phase::kLast) {
    return step_count_;
  }
  if (stop_requested_) {
    if (sync() && Planted("stop.version_ahead")) {
      return schedule_->VersionAhead(step_, step_count_);
    }
    return step_;
  }
  if (torn_since_ns_ != 0) {
    return step_;  // an earlier try found a torn contribution: overdue
  }
  std::optional<uint64_t> due = schedule_->Due(step_, now_ns_);
  if (due.has_value() && StandsStill()) {
    // No version ahead will come: take the one that is there.
    due = step_;
    if (checkpoint_step_ == step_) {
      due.reset();
    }
  }
  if (due.has_value() && *due >= step_count_) {
    due.reset();  // the checkpoint at the end comes by itself
  }
  return due;
}

// A contribution of an absent worker is applied in part: only its replacement
// can finish it, and a hold would stop that for nothing.
bool JobState::WaitsForTornWorker() {
  const std::optional<int> slot = TornAndAway();
  if (!slot.has_value()) {
    return false;
  }
  if (torn_since_ns_ == 0) {
    torn_since_ns_ = now_ns_;
  }
  if (TimeToSay("torn", 5.0)) {
    Say(absl::StrCat("the checkpoint waits for ", WorkerName(*slot),
                     ", which ended inside contribution ",
                     tracker_.NextSequenceMin(*slot), ", ",
                     static_cast<int>(SecondsSince(torn_since_ns_)), " s of ",
                     options_.torn_wait, " s: start that worker again"));
  }
  if (stop_requested_) {
    AskToTake(*slot);
  }
  return true;
}

void JobState::OnTorn() {
  if (torn_since_ns_ == 0) {
    torn_since_ns_ = now_ns_;
  }
  // One worker that is slow to hold must not stop the others for most of the
  // time. In a stop they have nothing else to do.
  const bool soon = stop_requested_ || phase_ != Phase::kTraining ||
                    Planted("checkpoint.torn_retries_soon");
  int64_t wait_ns = kRetryCheckpointNs;
  if (!soon) {
    const int64_t held_ns = now_ns_ - cycle_.begun_ns();
    wait_ns = std::max(wait_ns, kTornRetryTimes * held_ns);
  }
  retry_ns_ = now_ns_ + wait_ns;
}

void JobState::AdvanceCheckpoint() {
  if (const auto outcome = cycle_.TakeOutcome(); outcome.has_value()) {
    OnOutcome(*outcome);
  }
  if (phase_ == Phase::kTraining && Complete()) {
    phase_ = Phase::kLast;
    phase_begin_ns_ = now_ns_;
    torn_since_ns_ = retry_ns_ = 0;
    tries_failed_ = 0;
  }
  if (phase_ == Phase::kLast) {
    LogLast();  // first: DONE comes after the last line of train.jsonl
  }
  // A stop gives up on freezing after a while, since whoever asked for it may
  // kill us soon. What is frozen is whole, and its files are waited for.
  if (phase_ == Phase::kTraining && stop_requested_ &&
      cycle_.state() < CheckpointCycle::State::kWriting &&
      cycle_.state() != CheckpointCycle::State::kPreparing &&
      SecondsSince(stop_ns_) > options_.torn_wait) {
    End(absl::CancelledError(absl::StrCat(
            stop_reason_, ": stopped without a checkpoint of step ", step_,
            ", the newest is ", checkpoint_.empty() ? "none" : checkpoint_,
            DescribeTorn())),
        true);
    return;
  }
  DropHopelessVersion();
  if (cycle_.idle() && phase_ <= Phase::kLast) {
    BeginCheckpoint();
  }
  // A worker that does not hold in time leaves a torn contribution at most, and
  // then the marks say so.
  if (cycle_.state() == CheckpointCycle::State::kHolding && hold_sent_ &&
      (roster_.AllHold() || SecondsSince(cycle_.begun_ns()) > HoldWait())) {
    cycle_.OnHeld();
  }
  if (!CheckMarks()) {
    return;
  }
  if (cycle_.state() == CheckpointCycle::State::kReady) {
    const absl::Status status = CommitCycle();
    if (!status.ok()) {
      Fail(status);
      return;
    }
  }
  HoldOrRelease();
}

bool JobState::CheckMarks() {
  if (cycle_.state() != CheckpointCycle::State::kChecking) {
    return true;
  }
  if (marks_tickets_.empty()) {
    // Answers to earlier Hellos may be from before the hold.
    marks_tickets_ = AskAll();
  } else if (AllFresh(marks_tickets_)) {
    marks_tickets_.clear();
    std::vector<int64_t> next;
    bool torn = false;
    for (int w = 0; w < roster_.count(); ++w) {
      const SlotMarks marks = tracker_.Marks(w);
      next.push_back(static_cast<int64_t>(marks.next_sequence()));
      torn = torn || marks.torn();
    }
    AdvanceProgress();
    if (stop_requested_ && checkpoint_step_ == step_) {
      FinishCheckpoints();  // nothing was done since the last one
      return false;
    }
    cycle_.OnMarks(torn, std::move(next), step_, &actions_);
  } else if (!stop_requested_ && phase_ == Phase::kTraining &&
             tracker_.Unreachable(now_ns_).has_value()) {
    // The workers hold for marks that do not come. They do reach the shard, so
    // this try is given up as if it were torn, and they go on.
    cycle_.OnMarks(/*torn=*/true, {}, step_, &actions_);
  }
  return true;
}

void JobState::HoldOrRelease() {
  // A worker that held for the last checkpoint of a stop does not go on: what
  // it did after it would be lost.
  const bool hold =
      cycle_.wants_hold() || (hold_sent_ && stop_requested_ && !cycle_.idle());
  if (hold == hold_sent_ || phase_ > Phase::kLast) {
    return;
  }
  hold_sent_ = hold;
  Command command;
  if (hold_sent_) {
    command.set_hold(true);
  } else {
    command.set_release(true);
  }
  Broadcast(command);
}

void JobState::BeginCheckpoint() {
  const bool wanted = phase_ == Phase::kLast || stop_requested_;
  if (phase_ == Phase::kLast && checkpoint_step_ == step_count_) {
    FinishCheckpoints();  // it is there already
    return;
  }
  const std::optional<uint64_t> due = DueCheckpoint();
  if (!due.has_value() ||
      (!wanted && tracker_.Unreachable(now_ns_).has_value())) {
    return;  // a hold would stop the workers, which do reach the shard
  }
  // In a stop the workers are leaving, so a version ahead may never come.
  if (sync() && stop_requested_ && phase_ == Phase::kTraining &&
      !Planted("stop.version_ahead")) {
    marks_tickets_.clear();
    cycle_.BeginAtNewest(ChiefSender(), now_ns_);
    return;
  }
  if (sync()) {
    cycle_.BeginAtVersion(*due, ChiefSender(), now_ns_, &actions_);
    return;
  }
  if (WaitsForTornWorker()) {
    if (!wanted && SecondsSince(torn_since_ns_) > options_.torn_wait) {
      Say(absl::StrCat("gave up the checkpoint at ", step_,
                       ": no replacement came"),
          true);
      torn_since_ns_ = 0;
      schedule_->OnTried(step_, now_ns_);
    }
    return;
  }
  marks_tickets_.clear();
  // Nobody has work in the last phase, so there is nobody to hold.
  cycle_.BeginFreeze(phase_ != Phase::kLast, ChiefSender(), now_ns_);
}

absl::Status JobState::CommitCycle() {
  Manifest manifest;
  *manifest.mutable_declaration() = start_.declaration();
  if (options_.sdk_job) {
    for (int w = 0; w < roster_.count(); ++w) {
      // Sync: the marks of a retired slot move with the others', so the step
      // is what every slot has pushed.
      uint64_t pushes = cycle_.step();
      if (!sync()) {
        pushes =
            PushesBefore(w) + static_cast<uint64_t>(cycle_.next_sequences()[w]);
      }
      manifest.add_pushes(pushes);
    }
    cycle_.Commit(std::move(manifest), &actions_);
    return absl::OkStatus();
  }
  std::vector<ContributionRange> applied;
  if (sync()) {
    const Declaration& declaration = start_.declaration();
    // Sync takes contributions in their order: what is applied is one range
    // from 0, and the last step may be shorter than the others.
    const int64_t before = list_.total() - list_.remaining_count();
    const auto done = static_cast<int64_t>(
        (cycle_.step() - declaration.base_version()) * per_step_);
    applied.push_back({0, std::min(before + done, list_.total())});
  } else {
    WEIR_ASSIGN_OR_RETURN(applied, list_.Applied(cycle_.next_sequences()));
  }
  for (const ContributionRange& range : applied) {
    manifest.add_applied_range(static_cast<uint64_t>(range.begin));
    manifest.add_applied_range(static_cast<uint64_t>(range.end));
  }
  manifest.set_contribution_count(total_);
  manifest.set_job_spec_text(options_.spec_text);
  cycle_.Commit(std::move(manifest), &actions_);
  return absl::OkStatus();
}

void JobState::OnOutcome(const CheckpointCycle::Outcome& outcome) {
  switch (outcome.result) {
    case CheckpointCycle::Result::kTorn:
      OnTorn();
      return;
    case CheckpointCycle::Result::kPassed:
      OnPassed();
      return;
    case CheckpointCycle::Result::kAbandoned:
      return;
    case CheckpointCycle::Result::kCommitted:
      Say(absl::StrCat("checkpoint ", outcome.name, " is committed"));
      checkpoint_ = outcome.name;
      checkpoint_step_ = outcome.step;
      schedule_->OnTried(outcome.step, now_ns_);
      torn_since_ns_ = retry_ns_ = 0;
      tries_failed_ = 0;
      // A checkpoint that began before the stop may lack what came after it.
      if (stop_requested_ && phase_ == Phase::kTraining &&
          cycle_.begun_ns() >= stop_ns_) {
        FinishCheckpoints();
      }
      return;  // BeginCheckpoint sees whether it was the last one
    case CheckpointCycle::Result::kFailed:
      break;
  }
  // Only a checkpoint that the job's end or a stop needs is worth waiting for:
  // a periodic one is simply left out until the next is due.
  ++tries_failed_;
  const absl::Status status = Annotate(
      outcome.status, absl::StrCat("checkpoint ", outcome.name, " failed"));
  if (phase_ == Phase::kLast || stop_requested_) {
    RetryNeeded(status);
    return;
  }
  schedule_->OnTried(std::max(outcome.step, step_), now_ns_);
  Say(absl::StrCat(status.message(), "; the job goes on"), true);
}

}  // namespace weir
