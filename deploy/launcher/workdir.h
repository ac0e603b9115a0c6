// The working directory of a run: how it is called, and whether it is free.
#ifndef DEPLOY_LAUNCHER_WORKDIR_H_
#define DEPLOY_LAUNCHER_WORKDIR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

// Returns runs/<name>-<time> for a new run. To resume it returns, and prints,
// the newest runs/<name>-* that has a checkpoint; if no run has one, the newest
// of all. Paths are relative to the current directory.
// Errors: INVALID_ARGUMENT when there is no run to resume.
absl::StatusOr<std::string> DefaultWorkdir(const std::string& name,
                                           bool resume);

// Returns OK when a new run may write to `workdir`, which need not exist.
// Errors: INVALID_ARGUMENT when it holds an earlier run.
absl::Status CheckHoldsNoRun(const std::string& workdir);

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_WORKDIR_H_
