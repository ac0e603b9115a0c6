// The logs of a run: finds the files of its tasks and reads their lines, also
// while they grow.
//
// Place: between Files and LogMerge, for `weir logs`. A task's file holds what
// all its starts printed (deploy/launcher/output_forwarder.h).
//
// Threads: one at a time.
// Cost: memory for kReadBytes of each file, however long files and lines are.
#ifndef DEPLOY_LOGS_LOG_FILES_H_
#define DEPLOY_LOGS_LOG_FILES_H_

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/files.h"
#include "common/job/cluster_spec.h"
#include "deploy/launcher/output_forwarder.h"

namespace weir {

// A longer line is shown as several. A line of Weir is far shorter, but a
// program may print what it likes.
inline constexpr size_t kLogLineBytesMax = 64 << 10;

// The task of a file "worker-0.log"; nullopt for other names.
std::optional<TaskId> TaskOfLog(const std::string& name);

// Returns the folder of logs that `dir` names: `dir`/logs of a run, or the
// folder itself. Errors: INVALID_ARGUMENT if there is no log in either.
absl::StatusOr<std::string> FindLogFolder(Files* files, const std::string& dir);

// Returns the tasks that have a log in `folder`: ps, chief, workers, evaluator.
absl::StatusOr<std::vector<TaskId>> ListLogs(Files* files,
                                             const std::string& folder);

// The path of a task's log.
std::string LogPath(const std::string& folder, const TaskId& task);

// Reads one file.
class LogFile {
 public:
  LogFile(Files* files, std::string path);

  // Returns the next line; nullopt if the file has no further one by now. The
  // line that the file ends with counts only if it is complete, or with `last`.
  // A file that has become shorter was emptied, and is read from its begin.
  // Errors: those of Files. The file is then at its end for good.
  absl::StatusOr<std::optional<std::string>> Next(bool last);

 private:
  // Reads on. Returns false at the end.
  absl::StatusOr<bool> Read();

  Files* const files_;
  const std::string path_;
  std::unique_ptr<FileReader> reader_;
  int64_t offset_ = 0;
  bool failed_ = false;
  LineCutter cutter_;
  std::deque<std::string> lines_;
};

}  // namespace weir

#endif  // DEPLOY_LOGS_LOG_FILES_H_
