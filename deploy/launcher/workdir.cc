#include "deploy/launcher/workdir.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/identity.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "nlohmann/json.hpp"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/task/admin_file.h"

namespace weir {
namespace {

constexpr char kStamp[] = "%Y%m%d-%H%M%S";
constexpr char kLockName[] = ".launcher";

// Whether `run` is the name of a run of `name`: its time follows. A job "a" has
// no part in the runs of a job "a-b".
bool IsRunOf(const std::string& run, const std::string& name) {
  std::tm time = {};
  const std::string start = name + "-";
  if (run.rfind(start, 0) != 0) {
    return false;
  }
  const char* const end = strptime(run.c_str() + start.size(), kStamp, &time);
  return end != nullptr && *end == 0;
}

absl::Status CheckHoldsNoRun(const std::string& workdir) {
  // Both are the chief's. A directory with logs and a job file alone holds
  // nothing that a new run would destroy, so it may be used again.
  for (const char* name : {"checkpoints", "train.jsonl"}) {
    WEIR_ASSIGN_OR_RETURN(const bool exists,
                          Files::Real()->Exists(JoinPath(workdir, name)));
    if (exists) {
      return Invalid("--workdir ", workdir, " holds an earlier run (", name,
                     "): add --resume, or take another directory");
    }
  }
  return absl::OkStatus();
}

// Makes the directory of a new run, and returns its name. A run that begins in
// the same second as another one gets the name of a second that follows.
absl::StatusOr<std::string> MakeNewRun(const std::string& name) {
  WEIR_RETURN_IF_ERROR(Files::Real()->MakeDirectories("runs"));
  for (std::time_t time = std::time(nullptr);; ++time) {
    std::tm local = {};
    localtime_r(&time, &local);
    char stamp[32];
    std::strftime(stamp, sizeof(stamp), kStamp, &local);
    std::string run = absl::StrCat("runs/", name, "-", stamp);
    const absl::Status made = Files::Real()->MakeDirectory(run);
    if (made.ok()) {
      return run;
    }
    if (!absl::IsAlreadyExists(made)) {
      return made;
    }
  }
}

absl::StatusOr<std::unique_ptr<HeldLock>> Lock(const std::string& workdir) {
  auto lock = Files::Real()->TryLock(
      JoinPath(workdir, kLockName),
      absl::StrCat("process ", ProcessId(), " on ", HostName()));
  if (absl::IsAlreadyExists(lock.status())) {
    return Invalid("--workdir ", workdir, " is in use by another launcher, ",
                   lock.status().message(),
                   ": end that one, or take another directory");
  }
  if (absl::IsUnimplemented(lock.status())) {
    return nullptr;  // training without a lock is worth more than no training
  }
  return lock;
}

}  // namespace

absl::StatusOr<std::string> NewestRun(const std::string& name) {
  // The larger pair wins: first a run with a checkpoint, then the later time,
  // since the stamps above sort as they follow in time. A run that ended before
  // its first checkpoint must not hide an older one that has hours of work.
  std::pair<bool, std::string> newest;  // whether it has a checkpoint
  const auto runs = Files::Real()->List("runs");
  // No folder runs/ is the same as an empty one.
  for (const std::string& run : runs.value_or(std::vector<std::string>())) {
    if (IsRunOf(run, name)) {
      const auto checkpoints = ListCheckpoints(
          Files::Real(), absl::StrCat("runs/", run, "/checkpoints"));
      newest = std::max(
          newest, std::pair(checkpoints.ok() && !checkpoints->empty(), run));
    }
  }
  if (newest.second.empty()) {
    return Invalid("--resume: no earlier run of '", name,
                   "' under runs/; name its directory with --workdir");
  }
  std::printf("resuming runs/%s\n", newest.second.c_str());
  return "runs/" + newest.second;
}

absl::StatusOr<Workdir> PrepareWorkdir(const WorkdirUse& use) {
  Files* files = Files::Real();
  std::string workdir = use.workdir;
  if (workdir.empty()) {
    WEIR_ASSIGN_OR_RETURN(
        workdir, use.resume ? NewestRun(use.name) : MakeNewRun(use.name));
  }
  std::error_code ignored;
  workdir = std::filesystem::absolute(workdir, ignored).string();
  if (use.resume) {
    WEIR_ASSIGN_OR_RETURN(const bool known,
                          files->Exists(JoinPath(workdir, use.mark)));
    if (!known) {
      return Invalid("--resume: there is no run in ", workdir,
                     "; check --workdir, or start one without --resume");
    }
  }
  WEIR_RETURN_IF_ERROR(files->MakeDirectories(workdir));
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<HeldLock> lock, Lock(workdir));
  if (!use.resume && use.exclusive) {
    // Another launcher may have trained here before the lock was ours.
    WEIR_RETURN_IF_ERROR(CheckHoldsNoRun(workdir));
  }
  WEIR_RETURN_IF_ERROR(files->MakeDirectories(workdir + "/logs"));
  return Workdir{std::move(workdir), std::move(lock)};
}

absl::Status KeepCluster(const std::string& workdir,
                         const std::string& cluster) {
  if (workdir.empty()) {
    return absl::OkStatus();
  }
  return Files::Real()->WriteAtomically(JoinPath(workdir, kClusterName),
                                        cluster + "\n");
}

std::map<std::string, int> KeptTaskCounts(const std::string& workdir) {
  const auto text = Files::Real()->ReadAll(JoinPath(workdir, kClusterName));
  // A broken file must not stop a resume: the counts are only a default.
  const auto json = nlohmann::json::parse(text.value_or(""), nullptr,
                                          /*allow_exceptions=*/false);
  std::map<std::string, int> counts;
  if (json.is_object() && json.contains("cluster")) {
    for (const auto& [role, addresses] : json["cluster"].items()) {
      counts[role] = static_cast<int>(addresses.size());
    }
  }
  return counts;
}

absl::Status KeepSecret(const std::string& workdir,
                        const Security::Options& security) {
  if (workdir.empty() || security.secret.empty()) {
    return absl::OkStatus();
  }
  return Files::Real()->WriteAtomically(JoinPath(workdir, ".secret"),
                                        security.secret + "\n");
}

std::string PageLink(const std::string& address, const std::string& token) {
  return absl::StrCat("http://", address, "/",
                      token.empty() ? "" : "?token=", token);
}

PageAnnouncer::PageAnnouncer(const AdminFlags& admin,
                             const std::string& workdir,
                             const Security::Options& security,
                             std::function<void(const std::string& line)> show)
    : admin_(admin),
      workdir_(workdir),
      security_(security),
      show_(std::move(show)),
      waits_(admin.wanted() && !workdir.empty()) {
  if (waits_) {
    std::error_code ignored;
    std::filesystem::remove(JoinPath(workdir_, kAdminFileName), ignored);
  }
}

void PageAnnouncer::Poll() {
  if (!waits_) {
    return;
  }
  const auto address =
      Files::Real()->ReadAll(JoinPath(workdir_, kAdminFileName));
  if (!address.ok()) {
    return;  // not yet
  }
  waits_ = false;
  const auto token = AdminTokenOf(admin_, security_);
  show_(absl::StrCat("page at ",
                     PageLink(std::string(absl::StripAsciiWhitespace(*address)),
                              token.ok() ? *token : "")));
}

}  // namespace weir
