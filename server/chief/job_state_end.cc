// JobState's end: the last lines, DONE, who must hear that the job is over, and
// how an error or a stop ends it.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/base/plant.h"
#include "server/chief/job_state.h"

namespace weir {
namespace {

constexpr int64_t kRetryDoneNs = 1'000'000'000;
// For the reports of the last contributions, which are on their way: a worker
// sends them within a heartbeat, unless it died.
constexpr double kLastReportsWait = 2.0;  // s
// For the evaluator's line on the last checkpoint, in seconds, where the job
// file does not say.
constexpr double kEvaluatorWait = 60.0;

Command StopCommand(const absl::Status& status) {
  Command command;
  command.mutable_stop()->set_code(static_cast<uint32_t>(status.code()));
  command.mutable_stop()->set_reason(std::string(status.message()));
  return command;
}

}  // namespace

bool JobState::Hear(uint64_t stream, const Progress& progress) {
  if (progress.message_number() == 0) {
    return false;
  }
  Roster::Worker* const worker =
      roster_.mutable_worker(static_cast<int>(progress.slot()));
  // The worker sends a message again when its stream broke before the
  // acknowledgement, which says nothing of whether the message arrived.
  const bool heard = progress.message_number() <= worker->message_number;
  if (!heard) {
    worker->message_number = progress.message_number();
  }
  Command command;
  command.set_heard(worker->message_number);
  actions_.push_back(SendCommand{stream, command});
  return heard;
}

void JobState::LogLast() {
  if (last_logged_ || (!roster_.AllOutOfWork() &&
                       SecondsSince(phase_begin_ns_) <= kLastReportsWait)) {
    return;
  }
  last_logged_ = true;
  LogEnd(step_);
}

void JobState::WriteTheDone() {
  const bool logged = last_logged_ || !train_log_.has_value();
  if (done_asked_ || !logged || now_ns_ < retry_ns_) {
    return;
  }
  // I5: workers hear Stop from End() alone; AnswerLate tells SDK workers.
  done_asked_ = true;
  actions_.push_back(WriteDone{checkpoint_, WaitsForEvaluator()});
}

void JobState::OnDoneWritten(const absl::Status& status) {
  now_ns_ = options_.clock->NowNs();
  if (phase_ != Phase::kLast) {
    return;
  }
  done_asked_ = false;
  // I4: the job is done and only has to say so, thus it tries until it can.
  if (!status.ok()) {
    retry_ns_ = now_ns_ + kRetryDoneNs;
    Say(absl::StrCat("DONE cannot be written, trying again: ",
                     status.message()),
        true);
    return;
  }
  phase_ = Phase::kEvaluating;
  phase_begin_ns_ = now_ns_;
  if (!WaitsForEvaluator()) {
    End(absl::OkStatus(), true);
  }
  Advance();
}

absl::StatusOr<RegisterReply> JobState::AnswerLate(
    const RegisterRequest& request, const absl::Status& end) {
  if (Planted("end.forgets_latecomers")) {
    return absl::FailedPreconditionError("the job is over");
  }
  // `over` tells it all that a Stop would, so nobody waits for it any more.
  if (request.rank() < static_cast<uint32_t>(roster_.count())) {
    roster_.mutable_worker(static_cast<int>(request.rank()))->told = true;
  }
  RegisterReply reply;
  reply.mutable_over()->set_code(static_cast<uint32_t>(end.code()));
  reply.mutable_over()->set_reason(std::string(end.message()));
  return reply;
}

bool JobState::WorkersAreGone() const {
  if (roster_.AnyConnected()) {
    return false;
  }
  if (Planted("end.forgets_latecomers") ||
      roster_.AllTold(/*retired_knows=*/options_.sdk_job)) {
    return true;
  }
  // After an error workers end with 138, whether they hear of it or not.
  return !final_status_.ok() &&
         SecondsSince(phase_begin_ns_) > options_.fail_wait;
}

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
    return;  // I3: the first end is the one that counts
  }
  final_status_ = std::move(status);
  if (final_status_.ok()) {
    // A worker that left before comes again, and is to hear that the job is
    // done: otherwise it would wait for a chief that is gone.
    for (int w = 0; w < roster_.count(); ++w) {
      roster_.mutable_worker(w)->told = false;
    }
  }
  shutdown_ps_ = shutdown_ps && phase_ >= Phase::kReady;
  phase_ = Phase::kEnding;
  phase_begin_ns_ = now_ns_;
  Broadcast(StopCommand(final_status_));
}

void JobState::Greet(uint64_t stream) {
  Command command;
  if (phase_ >= Phase::kEnding) {
    command = StopCommand(final_status_);
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
  // I6: no Stop and no Shutdown. The workers find the other chief, or give up
  // with a code for another try.
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
  if (Finished() && phase_ < Phase::kEnding) {
    // I4: the last checkpoint holds all, so no error makes the end a bad one.
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
    double wait = kEvaluatorWait;
    if (options_.spec.evaluation().has_wait_seconds()) {
      wait = options_.spec.evaluation().wait_seconds();
    }
    if (SecondsSince(phase_begin_ns_) > wait) {
      Say(absl::StrCat("the evaluator has no line on ", checkpoint_, " after ",
                       wait, " s"),
          true);
      End(absl::OkStatus(), true);
    }
  }
  double end_wait = options_.end_wait;
  if (!final_status_.ok() && !stop_requested_) {
    // Workers end with the same code whether they hear of the error or not.
    end_wait = std::min(options_.fail_wait, end_wait);
  }
  if (phase_ == Phase::kEnding &&
      (WorkersAreGone() || SecondsSince(phase_begin_ns_) > end_wait)) {
    if (stop_requested_ && checkpoint_step_.has_value()) {
      // The last reports are in: no line may be missing before --resume.
      LogEnd(*checkpoint_step_);
    }
    // Only now: a ps that ends takes with it what its workers still wait for.
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
    actions_.push_back(Finish{final_status_});  // I3: no phase follows
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
  // The checkpoint of the stop need not wait out the pause that an earlier,
  // less urgent one earned.
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

}  // namespace weir
