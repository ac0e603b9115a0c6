// The directory of a run.
#ifndef DEPLOY_LAUNCHER_WORKDIR_H_
#define DEPLOY_LAUNCHER_WORKDIR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

// runs/<name>-<time> for a new run; to resume, the newest runs/<name>-* that
// has a checkpoint, or the newest at all, which is printed.
// Errors: INVALID_ARGUMENT when there is none to resume.
absl::StatusOr<std::string> DefaultWorkdir(const std::string& name,
                                           bool resume);

// Errors: INVALID_ARGUMENT when `workdir` holds an earlier run.
absl::Status CheckHoldsNoRun(const std::string& workdir);

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_WORKDIR_H_
