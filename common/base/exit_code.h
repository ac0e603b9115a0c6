// The exit codes, which tell whoever started a process why it ended.
// docs/exit_codes.md tells it to operators.
//
// Kubernetes operators restart a pod that ended with 128 or above, and give up
// below. So no permanent error has a code of 128 or above, and no transient one
// a code below.
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
  kExitRefused = 6,        // not proven to be of the job, or not in that role
  kExitRetry = 138,        // a peer was lost; start this task again
  kExitInterrupted = 130,  // SIGINT, after a checkpoint
  kExitTerminated = 143,   // SIGTERM, after a checkpoint
};

// The exit code for the status with which a process ends:
//   OK                                   0
//   INTERNAL, UNKNOWN                    1
//   INVALID_ARGUMENT                     2
//   NOT_FOUND, OUT_OF_RANGE, the others  3
//   DATA_LOSS                            4
//   PERMISSION_DENIED                    5
//   UNAUTHENTICATED                      6
//   UNAVAILABLE, DEADLINE_EXCEEDED,      138
//   FAILED_PRECONDITION, CANCELLED,
//   RESOURCE_EXHAUSTED, ABORTED
//
// OUT_OF_RANGE means here that limits.max_bad_contributions was passed. The one
// of a shard, which says that a sequence number was skipped, never gets this
// far: a client sends again, and after that ends with FAILED_PRECONDITION.
int ExitCodeFor(const absl::Status& status);

// Whether the task is worth starting again; also true for 128 + a signal.
inline bool IsTransientExit(int code) { return code >= 128; }

}  // namespace weir

#endif  // COMMON_BASE_EXIT_CODE_H_
