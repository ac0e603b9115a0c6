#include "deploy/launcher/workdir.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "proto/checkpoint/checkpoint_files.h"

namespace weir {

absl::StatusOr<std::string> DefaultWorkdir(const std::string& name,
                                           bool resume) {
  if (!resume) {
    const std::time_t now = std::time(nullptr);
    std::tm local = {};
    localtime_r(&now, &local);
    char stamp[32];
    std::strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &local);
    return absl::StrCat("runs/", name, "-", stamp);
  }
  std::pair<bool, std::string> newest;  // whether it has a checkpoint
  const auto runs = Files::Real()->List("runs");
  for (const std::string& run :
       runs.ok() ? *runs : std::vector<std::string>{}) {
    if (run.rfind(name + "-", 0) == 0) {
      const auto checkpoints = ListCheckpoints(
          Files::Real(), absl::StrCat("runs/", run, "/checkpoints"));
      newest = std::max(
          newest, std::pair(checkpoints.ok() && !checkpoints->empty(), run));
    }
  }
  if (newest.second.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--resume: no earlier run of '", name,
                     "' under runs/; name its directory with --workdir"));
  }
  std::printf("resuming runs/%s\n", newest.second.c_str());
  return "runs/" + newest.second;
}

absl::Status CheckHoldsNoRun(const std::string& workdir) {
  for (const char* name : {"checkpoints", "train.jsonl"}) {
    WEIR_ASSIGN_OR_RETURN(const bool exists,
                          Files::Real()->Exists(JoinPath(workdir, name)));
    if (exists) {
      return absl::InvalidArgumentError(
          absl::StrCat("--workdir ", workdir, " holds an earlier run (", name,
                       "): add --resume, or take another directory"));
    }
  }
  return absl::OkStatus();
}

}  // namespace weir
