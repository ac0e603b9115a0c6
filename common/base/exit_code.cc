#include "common/base/exit_code.h"

namespace weir {

int ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kDataLoss:
      return kExitDataLoss;
    case absl::StatusCode::kPermissionDenied:
      return kExitReplaced;
    case absl::StatusCode::kUnauthenticated:
      return kExitRefused;
    // Another start may mend these: a peer that is gone, a shard that was
    // restored meanwhile, a machine that is full.
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
      return kExitRetry;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return kExitBug;
    // The errors of the job itself. A code that is new in absl is taken for
    // one, because a restart that helps nobody goes on for ever.
    default:
      return kExitPermanent;
  }
}

}  // namespace weir
