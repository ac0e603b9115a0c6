#include "client/cc/transport/retry_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace weir {

// I1: the only list of codes.
Instruction InstructionOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:  // the server closed the stream in good order
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:  // by our own Sever
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnknown:  // a broken connection, in gRPC's words
      return Instruction::kRepeat;
    case absl::StatusCode::kDataLoss:
      return Instruction::kSendAgain;
    case absl::StatusCode::kOutOfRange:
      return Instruction::kResendOnce;
    default:
      return Instruction::kEnd;
  }
}

RetryPolicy::RetryPolicy(std::chrono::milliseconds lost_after)
    : lost_after_(lost_after),
      pause_max_(std::clamp(lost_after / 8, std::chrono::milliseconds(1),
                            kBackoffMax)),
      pause_min_(std::min(kBackoffMin, pause_max_)) {}

void RetryPolicy::OnAnswer() {
  pause_ = std::chrono::milliseconds(0);
  damaged_ = 0;
  last_error_ = absl::OkStatus();
}

bool RetryPolicy::MayRepeat(const absl::Status& status, int64_t now_ns) {
  last_error_ = status;
  if (pause_.count() == 0) {
    since_ns_ = now_ns;
  }
  pause_ = std::clamp(pause_ * 2, pause_min_, pause_max_);  // I2
  switch (InstructionOf(status.code())) {
    case Instruction::kRepeat:
      return true;
    case Instruction::kSendAgain:
      return ++damaged_ < kDamagedMax;
    case Instruction::kResendOnce:
    case Instruction::kEnd:
      break;
  }
  return false;
}

bool RetryPolicy::lost(int64_t now_ns) const {
  return pause_.count() > 0 &&
         now_ns - since_ns_ >= std::chrono::nanoseconds(lost_after_).count();
}

absl::Status ForThisTask(const absl::Status& status) {
  if (absl::IsOutOfRange(status)) {
    return absl::FailedPreconditionError(
        absl::StrCat(status.message(),
                     "; start this task again: it goes on where the shards "
                     "expect it"));
  }
  if (absl::IsDataLoss(status)) {
    return absl::FailedPreconditionError(
        absl::StrCat(status.message(),
                     ", again and again; check the network between the hosts, "
                     "then start this task again"));
  }
  return status;
}

std::string UnreachableFor(std::chrono::nanoseconds lost_after) {
  return absl::StrCat("unreachable for ",
                      std::chrono::duration<double>(lost_after).count(), " s");
}

absl::Status LostError(std::string reason, const absl::Status& last_error) {
  if (!last_error.ok()) {
    absl::StrAppend(&reason, ": ", last_error.message());
  }
  return absl::FailedPreconditionError(reason);
}

absl::Status NamedPs(int ps, const std::string& address,
                     const absl::Status& status) {
  const std::string message = absl::StrReplaceAll(
      status.message(), {{absl::StrCat("ps ", address, ": "), ""}});
  return absl::Status(status.code(),
                      absl::StrCat("ps ", ps, " (", address, ") ", message));
}

}  // namespace weir
