// What a process's exit code tells the one who started it; for operators it is
// told in docs/exit_codes.md.
//
// Operators restart a pod on codes >= 128 and give up below: no permanent error
// is ever >= 128, no transient one below.
#ifndef COMMON_BASE_EXIT_CODE_H_
#define COMMON_BASE_EXIT_CODE_H_

#include "absl/status/status.h"

namespace weir {

enum ExitCode : int {
  kExitOk = 0,
  kExitBug = 1,            // an invariant of ours broke
  kExitUsage = 2,          // wrong flag, TF_CONFIG or JobSpec
  kExitPermanent = 3,      // no start can mend it: bad data, bad gradients
  kExitDataLoss = 4,       // a checkpoint is damaged
  kExitReplaced = 5,       // a newer process took this task's place
  kExitRetry = 138,        // a peer was lost; start this task again
  kExitInterrupted = 130,  // SIGINT, after a checkpoint
  kExitTerminated = 143,   // SIGTERM, after a checkpoint
};

// INVALID_ARGUMENT -> 2; NOT_FOUND, OUT_OF_RANGE, ... -> 3; DATA_LOSS -> 4;
// PERMISSION_DENIED -> 5; UNAVAILABLE, DEADLINE_EXCEEDED, FAILED_PRECONDITION,
// RESOURCE_EXHAUSTED, CANCELLED, ABORTED -> 138; INTERNAL and UNKNOWN -> 1.
//
// OUT_OF_RANGE here means limits.max_bad_contributions. That of a shard, an
// contribution was skipped, never gets this far: clients send again, and after
// that end with FAILED_PRECONDITION.
int ExitCodeFor(const absl::Status& status);

// Whether the task is worth starting again; also true for 128 + a signal.
inline bool IsTransientExit(int code) { return code >= 128; }

}  // namespace weir

#endif  // COMMON_BASE_EXIT_CODE_H_
