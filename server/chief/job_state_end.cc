// JobState's last steps: DONE, and who must hear that the job is over.
#include "absl/strings/str_cat.h"
#include "common/base/plant.h"
#include "server/chief/job_state.h"

namespace weir {
namespace {

constexpr int64_t kRetryDoneNs = 1'000'000'000;
// For the reports of the last contributions, which are on their way.
constexpr double kLastReportsWait = 2.0;  // s

}  // namespace

bool JobState::Hear(uint64_t stream, const Progress& progress) {
  if (progress.message_number() == 0) {
    return false;
  }
  Roster::Worker* const worker =
      roster_.mutable_worker(static_cast<int>(progress.slot()));
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
  done_asked_ = true;
  actions_.push_back(WriteDone{checkpoint_, WaitsForEvaluator()});
}

void JobState::OnDoneWritten(const absl::Status& status) {
  now_ns_ = options_.clock->NowNs();
  if (phase_ != Phase::kLast) {
    return;
  }
  done_asked_ = false;
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
  // After an error they end with 138, whether they hear of it or not.
  return !final_status_.ok() &&
         SecondsSince(phase_begin_ns_) > options_.fail_wait;
}

}  // namespace weir
