// The second half of JobState: when it checkpoints, and how it ends.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "server/chief/job_state.h"

namespace weir {
namespace {

constexpr int64_t kRetryCheckpointNs = 1'000'000'000;
constexpr int64_t kTornRetryTimes = 10;  // what the hold took

}  // namespace

// -------------------------------------------------------------- checkpoints

std::optional<uint64_t> JobState::DueCheckpoint() {
  if (now_ns_ < retry_ns_) {
    return std::nullopt;
  }
  if (phase_ == Phase::kLast) {
    return step_count_;
  }
  if (stop_requested_) {
    return sync() && Planted("stop.version_ahead")
               ? schedule_->VersionAhead(step_, step_count_)
               : step_;
  }
  if (torn_since_ns_ != 0) {
    return step_;
  }
  std::optional<uint64_t> due = schedule_->Due(step_, now_ns_);
  if (due.has_value() && StandsStill()) {
    due = checkpoint_step_ == step_ ? std::nullopt : std::optional(step_);
  }
  // The one at the end comes by itself.
  return due.has_value() && *due < step_count_ ? due : std::nullopt;
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
  const int64_t held_ns = now_ns_ - cycle_.begun_ns();
  retry_ns_ = now_ns_ +
              (soon ? kRetryCheckpointNs
                    : std::max(kRetryCheckpointNs, kTornRetryTimes * held_ns));
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
    LogLast();
  }
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
  if (cycle_.state() == CheckpointCycle::State::kHolding && hold_sent_ &&
      (roster_.AllHold() || SecondsSince(cycle_.begun_ns()) > HoldWait())) {
    cycle_.OnHeld();
  }
  if (cycle_.state() == CheckpointCycle::State::kChecking) {
    if (marks_tickets_.empty()) {
      marks_tickets_ = AskAll();
    } else if (AllFresh(marks_tickets_)) {
      marks_tickets_.clear();
      std::vector<int64_t> next;
      for (int w = 0; w < roster_.count(); ++w) {
        next.push_back(static_cast<int64_t>(tracker_.NextSequenceMin(w)));
      }
      AdvanceProgress();
      if (stop_requested_ && checkpoint_step_ == step_) {
        FinishCheckpoints();  // nothing was done since the last one
        return;
      }
      cycle_.OnMarks(tracker_.AnyTorn(roster_.count()), std::move(next), step_,
                     &actions_);
    } else if (!stop_requested_ && phase_ == Phase::kTraining &&
               tracker_.Unreachable(now_ns_).has_value()) {
      cycle_.OnMarks(/*torn=*/true, {}, step_, &actions_);
    }
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

void JobState::HoldOrRelease() {
  // Who held for the last checkpoint does not go on: that would be lost.
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
  cycle_.BeginFreeze(phase_ != Phase::kLast, ChiefSender(), now_ns_);
}

absl::Status JobState::CommitCycle() {
  Manifest manifest;
  *manifest.mutable_declaration() = start_.declaration();
  for (int w = 0; options_.sdk_job && w < roster_.count(); ++w) {
    // Sync: the marks of a retired slot move with the others'.
    manifest.add_pushes(
        sync() ? cycle_.step()
               : PushesBefore(w) +
                     static_cast<uint64_t>(cycle_.next_sequences()[w]));
  }
  if (options_.sdk_job) {
    cycle_.Commit(std::move(manifest), &actions_);
    return absl::OkStatus();
  }
  std::vector<ContributionRange> applied;
  if (sync()) {
    const Declaration& declaration = start_.declaration();
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
      // One that began before the stop may lack what came after it.
      if (stop_requested_ && phase_ == Phase::kTraining &&
          cycle_.begun_ns() >= stop_ns_) {
        FinishCheckpoints();
      }
      return;  // BeginCheckpoint sees whether it was the last one
    case CheckpointCycle::Result::kFailed:
      break;
  }
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

// ---------------------------------------------------------------------- end

void JobState::LogEnd(uint64_t step) {
  if (!train_log_.has_value()) {
    return;
  }
  for (std::string& line : train_log_->End(step, now_ns_)) {
    actions_.push_back(AppendTrainLog{std::move(line)});
  }
}

void JobState::FinishCheckpoints() {
  if (phase_ == Phase::kLast) {
    WriteTheDone();
    return;
  }
  End(absl::CancelledError(
          absl::StrCat(stop_reason_, ": stopped after ", checkpoint_)),
      true);
}

void JobState::End(absl::Status status, bool shutdown_ps) {
  if (phase_ >= Phase::kEnding) {
    return;
  }
  final_status_ = std::move(status);
  if (final_status_.ok()) {
    // Who left before will come again, and is to hear that nothing is left.
    for (int w = 0; w < roster_.count(); ++w) {
      roster_.mutable_worker(w)->told = false;
    }
  }
  shutdown_ps_ = shutdown_ps && phase_ >= Phase::kReady;
  phase_ = Phase::kEnding;
  phase_begin_ns_ = now_ns_;
  Command command;
  command.mutable_stop()->set_code(static_cast<uint32_t>(final_status_.code()));
  command.mutable_stop()->set_reason(std::string(final_status_.message()));
  Broadcast(command);
}

void JobState::Greet(uint64_t stream) {
  Command command;
  if (phase_ >= Phase::kEnding) {
    command.mutable_stop()->set_code(
        static_cast<uint32_t>(final_status_.code()));
    command.mutable_stop()->set_reason(std::string(final_status_.message()));
  } else if (hold_sent_) {
    command.set_hold(true);
  } else {
    command.set_release(true);
  }
  actions_.push_back(SendCommand{stream, command});
}

void JobState::GiveWay(const absl::Status& why) {
  if (phase_ >= Phase::kEnding) {
    return;
  }
  superseded_ = true;
  final_status_ = absl::PermissionDeniedError(absl::StrCat(
      "another chief has taken over, this one ends and leaves the job to it: ",
      why.message()));
  // They find the other chief, or give up with a code for another try.
  for (const uint64_t stream : roster_.streams()) {
    actions_.push_back(EndStream{stream, Superseded()});
  }
  phase_ = Phase::kOver;
  actions_.push_back(Finish{final_status_});
}

absl::Status JobState::Superseded() const {
  return absl::UnavailableError(
      absl::StrCat("this chief ends: ", final_status_.message()));
}

void JobState::Fail(const absl::Status& status) {
  if (Finished() && phase_ < Phase::kEnding) {  // I4
    Say(absl::StrCat(status.message(), "; the job is done all the same"), true);
    return;
  }
  if (absl::IsPermissionDenied(status) && !Planted("chief.fenced_ends_job")) {
    GiveWay(status);
    return;
  }
  // After a permanent error the values are of no more use; after a transient
  // one another chief may go on with them.
  End(status,
      !IsTransientExit(ExitCodeFor(status)) && phase_ >= Phase::kTraining);
}

void JobState::AdvanceEnd() {
  if (phase_ == Phase::kEvaluating) {
    const double wait = options_.spec.evaluation().has_wait_seconds()
                            ? options_.spec.evaluation().wait_seconds()
                            : 60.0;
    if (SecondsSince(phase_begin_ns_) > wait) {
      Say(absl::StrCat("the evaluator has no line on ", checkpoint_, " after ",
                       wait, " s"),
          true);
      End(absl::OkStatus(), true);
    }
  }
  const double end_wait = final_status_.ok() || stop_requested_
                              ? options_.end_wait
                              : std::min(options_.fail_wait, options_.end_wait);
  if (phase_ == Phase::kEnding &&
      (WorkersAreGone() || SecondsSince(phase_begin_ns_) > end_wait)) {
    if (stop_requested_ && checkpoint_step_.has_value()) {
      // The last reports are in: no line may be missing before --resume.
      LogEnd(*checkpoint_step_);
    }
    phase_ = Phase::kShutdown;
    phase_begin_ns_ = now_ns_;
    shut_down_.assign(tracker_.count(), !shutdown_ps_);
    for (int s = 0; shutdown_ps_ && s < tracker_.count(); ++s) {
      ShutdownRequest request;
      *request.mutable_sender() = ChiefSender();
      request.set_chief_secret(options_.chief_secret);
      if (IsTransientExit(ExitCodeFor(final_status_))) {
        // A shard was lost, or the job was stopped before its end: whoever
        // starts tasks again starts all ps.
        request.set_code(static_cast<uint32_t>(final_status_.code()));
        request.set_reason(std::string(final_status_.message()));
      }
      actions_.push_back(ShardCall{s, request});
    }
  }
  if (phase_ == Phase::kShutdown &&
      (std::count(shut_down_.begin(), shut_down_.end(), true) ==
           tracker_.count() ||
       SecondsSince(phase_begin_ns_) > options_.shutdown_wait)) {
    phase_ = Phase::kOver;
    actions_.push_back(Finish{final_status_});
  }
}

void JobState::RequestStop(const std::string& reason) {
  now_ns_ = options_.clock->NowNs();
  if (stop_requested_) {
    return;
  }
  stop_requested_ = true;
  stop_reason_ = reason;
  stop_ns_ = now_ns_;
  retry_ns_ = 0;
  tries_failed_ = 0;
  if (phase_ < Phase::kTraining) {
    End(absl::CancelledError(absl::StrCat(reason, ": stopped at the start")),
        true);
  } else if (phase_ == Phase::kTraining) {
    Say(absl::StrCat(reason, ": writing a checkpoint, then stopping"));
  } else if (phase_ == Phase::kEvaluating) {
    Say(absl::StrCat(reason, ": not waiting for the evaluator any longer"));
    End(absl::OkStatus(), true);
  }
  Advance();
}

// ------------------------------------------------------------------ answers

void JobState::OnHello(int shard, const absl::StatusOr<HelloReply>& reply) {
  now_ns_ = options_.clock->NowNs();
  tracker_.Answered(shard, reply, now_ns_);
  if (absl::IsInvalidArgument(reply.status())) {  // a ps of another release
    Fail(Annotate(reply.status(), tracker_.Name(shard)));
  }
  if (reply.ok() && reply->leaving() && phase_ <= Phase::kTraining) {
    RequestStop(absl::StrCat(tracker_.Name(shard), " was asked to end"));
  }
  Advance();
}

void JobState::OnStatus(int shard, const absl::StatusOr<PsStatus>& reply) {
  now_ns_ = options_.clock->NowNs();
  start_.OnStatus(shard, reply, &actions_);
  Advance();
}

void JobState::OnDeclared(int shard,
                          const absl::StatusOr<DeclareReply>& reply) {
  now_ns_ = options_.clock->NowNs();
  start_.OnDeclared(shard, reply, &actions_);
  Advance();
}

void JobState::OnAssigned(int shard, const absl::Status& status) {
  now_ns_ = options_.clock->NowNs();
  start_.OnAssigned(shard, status);
  Advance();
}

void JobState::OnSlotsSet(int shard, const absl::Status& status) {
  now_ns_ = options_.clock->NowNs();
  if (!Running()) {
    return;
  }
  if (!status.ok()) {
    Fail(Annotate(status, tracker_.Name(shard)));
  } else if (!slots_set_.empty()) {
    slots_set_[shard] = true;
  }
  Advance();
}

void JobState::OnFrozen(int shard, const std::string& directory,
                        const SnapshotReply& reply) {
  now_ns_ = options_.clock->NowNs();
  if (superseded_) {
    return;
  }
  cycle_.OnFrozen(shard, directory, has_blocks_[shard], reply);
  Advance();
}

void JobState::OnWritten(int shard, const std::string& directory,
                         const absl::StatusOr<ShardFile>& file) {
  now_ns_ = options_.clock->NowNs();
  if (absl::IsPermissionDenied(file.status())) {
    Fail(Annotate(file.status(), tracker_.Name(shard)));
  }
  if (superseded_) {
    return;
  }
  cycle_.OnWritten(shard, directory,
                   file.ok() ? file
                             : absl::StatusOr<ShardFile>(Annotate(
                                   file.status(), tracker_.Name(shard))),
                   &actions_);
  Advance();
}

void JobState::OnShutdown(int shard) {
  now_ns_ = options_.clock->NowNs();
  if (!shut_down_.empty()) {
    shut_down_[shard] = true;
  }
  Advance();
}

void JobState::OnCheckpointFound(
    const absl::StatusOr<std::optional<FoundCheckpoint>>& found) {
  now_ns_ = options_.clock->NowNs();
  start_.OnCheckpointFound(found, &actions_);
  Advance();
}

void JobState::OnPrepared(const absl::StatusOr<std::string>& name) {
  now_ns_ = options_.clock->NowNs();
  if (superseded_) {
    return;
  }
  cycle_.OnPrepared(name, &actions_);
  Advance();
}

void JobState::OnCommitted(const absl::Status& status) {
  now_ns_ = options_.clock->NowNs();
  cycle_.OnCommitted(status);
  Advance();
}

void JobState::OnEvaluated() {
  now_ns_ = options_.clock->NowNs();
  if (phase_ == Phase::kEvaluating) {
    End(absl::OkStatus(), true);
  }
  Advance();
}

ChiefStatus JobState::status() const {
  ChiefStatus status;
  if (phase_ < Phase::kTraining) {
    status.set_phase(ChiefStatus::WAITING);
    status.set_message(start_.Describe());
  } else if (phase_ == Phase::kTraining) {
    status.set_phase(ChiefStatus::TRAINING);
  } else if (final_status_.ok()) {
    status.set_phase(phase_ == Phase::kOver ? ChiefStatus::DONE
                                            : ChiefStatus::FINISHING);
  } else {
    status.set_phase(ChiefStatus::FAILED);
    status.set_message(std::string(final_status_.message()));
  }
  status.set_step(step_);
  status.set_step_count(step_count_ == kEndless ? 0 : step_count_);
  status.set_checkpoint(checkpoint_);
  if (train_log_.has_value()) {
    status.set_loss(train_log_->loss());
    status.set_examples_per_second(train_log_->examples_per_second());
    status.set_staleness_mean(train_log_->staleness_mean());
    status.set_staleness_max(train_log_->staleness_max());
    status.set_examples(train_log_->examples());
  }
  return status;
}

}  // namespace weir
