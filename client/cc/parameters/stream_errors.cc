#include "client/cc/parameters/stream_errors.h"

#include "absl/strings/str_cat.h"

namespace weir {

bool IsRetriable(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:  // the server closed the stream in good order
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:  // by our own Sever
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnknown:  // a broken connection, in gRPC's words
      return true;
    default:
      return false;
  }
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

}  // namespace weir
