// The working directory of a run: how it is called, and whether it is free.
//
//   <directory>/.launcher   locked by the launcher that lives; holds its name.
//                           Where the file system has no locks nothing keeps a
//                           second launcher off.
#ifndef DEPLOY_LAUNCHER_WORKDIR_H_
#define DEPLOY_LAUNCHER_WORKDIR_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/object_store.h"
#include "proto/security/security.h"
#include "proto/task/admin_flags.h"

namespace weir {

// Returns, and prints, the newest runs/<name>-<time> that has a checkpoint; if
// no run has one, the newest of all. Paths are relative to the current
// directory.
// Errors: INVALID_ARGUMENT when there is no run to resume.
absl::StatusOr<std::string> NewestRun(const std::string& name);

// What a directory is wanted for.
struct WorkdirUse {
  // "" for a new runs/<name>-<time>, with `resume` for NewestRun's.
  std::string workdir;
  std::string name;  // of the run
  bool resume = false;
  // A file or folder of it that every run has; "" for the directory itself.
  std::string mark = "";
  // False for a run that writes nothing but logs, which are appended to.
  bool exclusive = true;
};

// A directory that no other launcher uses while this lives.
struct Workdir {
  std::string path;                // absolute
  std::unique_ptr<HeldLock> lock;  // null: the file system has no locks
};

// Makes the directory and its folder for logs, and locks it.
// Errors: INVALID_ARGUMENT when another launcher uses it, when it holds an
// earlier run, or with `resume` none. A run that it holds is unchanged then.
absl::StatusOr<Workdir> PrepareWorkdir(const WorkdirUse& use);

// The file of a run's directory that says where its tasks are, as TF_CONFIG
// does: {"cluster": {"ps": [...], ...}}.
inline constexpr char kClusterName[] = "cluster.json";

// Writes `cluster` there, for commands that ask the running job. Nothing is
// written if `workdir` is "".
absl::Status KeepCluster(const std::string& workdir,
                         const std::string& cluster);

// Returns how many tasks of each role the run in `workdir` had when it was last
// started, as KeepCluster kept them; empty where that cannot be read.
std::map<std::string, int> KeptTaskCounts(const std::string& workdir);

// Writes the job's secret, if it has one, to `workdir`/.secret, which only this
// user may read: WEIR_SECRET_FILE for commands that ask the running job.
// Nothing is written if `workdir` is "".
absl::Status KeepSecret(const std::string& workdir,
                        const Security::Options& security);

// The link to a page of the admin port at `address`, HOST:PORT, with the token
// that lets one in; "" for an insecure job.
std::string PageLink(const std::string& address, const std::string& token);

// Shows the link to the chief's page, once the chief has said in the run's
// directory where that is (proto/task/admin_file.h).
class PageAnnouncer {
 public:
  // `admin`: of the chief. Removes what an earlier chief has said.
  PageAnnouncer(const AdminFlags& admin, const std::string& workdir,
                const Security::Options& security,
                std::function<void(const std::string& line)> show);
  // Looks. Cheap once the link is shown, and where none is wanted.
  void Poll();

 private:
  const AdminFlags admin_;
  const std::string workdir_;
  const Security::Options security_;
  const std::function<void(const std::string& line)> show_;
  bool waits_;
};

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_WORKDIR_H_
