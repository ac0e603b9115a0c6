#include "deploy/logs/log_files.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"

namespace weir {
namespace {

constexpr size_t kReadBytes = 64 << 10;

// The order in which the launcher starts them.
int Rank(TaskRole role) {
  switch (role) {
    case TaskRole::kPs:
      return 0;
    case TaskRole::kChief:
      return 1;
    case TaskRole::kWorker:
      return 2;
    case TaskRole::kEvaluator:
      break;
  }
  return 3;
}

}  // namespace

std::optional<TaskId> TaskOfLog(const std::string& name) {
  absl::string_view rest = name;
  const size_t dash = rest.find('-');
  int index = 0;
  if (!absl::ConsumeSuffix(&rest, ".log") || dash == absl::string_view::npos ||
      !absl::SimpleAtoi(rest.substr(dash + 1), &index) || index < 0) {
    return std::nullopt;
  }
  const std::optional<TaskRole> role = ParseRole(rest.substr(0, dash));
  if (!role.has_value()) {
    return std::nullopt;
  }
  const TaskId task = {.role = *role, .index = index};
  // "worker-00.log" is no name that the launcher gives.
  return LogPath("", task) == absl::StrCat("/", name)
             ? std::optional<TaskId>(task)
             : std::nullopt;
}

std::string LogPath(const std::string& folder, const TaskId& task) {
  return absl::StrCat(folder, "/", RoleName(task.role), "-", task.index,
                      ".log");
}

absl::StatusOr<std::vector<TaskId>> ListLogs(Files* files,
                                             const std::string& folder) {
  WEIR_ASSIGN_OR_RETURN(const auto names, files->List(folder));
  std::vector<TaskId> tasks;
  for (const std::string& name : names) {
    if (const auto task = TaskOfLog(name); task.has_value()) {
      tasks.push_back(*task);
    }
  }
  std::sort(tasks.begin(), tasks.end(), [](const TaskId& a, const TaskId& b) {
    return std::pair(Rank(a.role), a.index) < std::pair(Rank(b.role), b.index);
  });
  return tasks;
}

absl::StatusOr<std::string> FindLogFolder(Files* files,
                                          const std::string& dir) {
  const auto info = files->Stat(dir);
  if (absl::IsNotFound(info.status())) {
    return Invalid("there is no directory ", dir);
  }
  WEIR_RETURN_IF_ERROR(info.status());
  if (!info->is_directory) {
    return Invalid(dir, " is no directory; give that of a run");
  }
  for (const std::string& folder : {JoinPath(dir, "logs"), dir}) {
    const auto tasks = ListLogs(files, folder);
    if (tasks.ok() && !tasks->empty()) {
      return folder;
    }
    if (!tasks.ok() && !absl::IsNotFound(tasks.status()) && folder != dir) {
      return tasks.status();
    }
  }
  return Invalid(dir,
                 " holds no logs: a run's directory has them in logs/; what a "
                 "task of `weir task` prints goes to its container or batch "
                 "system");
}

LogFile::LogFile(Files* files, std::string path)
    : files_(files), path_(std::move(path)), cutter_(kLogLineBytesMax) {}

absl::StatusOr<bool> LogFile::Read() {
  WEIR_ASSIGN_OR_RETURN(const FileInfo info, files_->Stat(path_));
  if (reader_ == nullptr || info.bytes < offset_) {
    WEIR_ASSIGN_OR_RETURN(reader_, files_->Open(path_));
    offset_ = 0;
  }
  const int64_t left = info.bytes - offset_;
  if (left <= 0) {
    return false;
  }
  std::string bytes;
  bytes.resize(std::min(static_cast<size_t>(left), kReadBytes));
  WEIR_RETURN_IF_ERROR(reader_->ReadAt(offset_, bytes.data(), bytes.size()));
  offset_ += static_cast<int64_t>(bytes.size());
  for (std::string& line : cutter_.Add(bytes)) {
    lines_.push_back(std::move(line));
  }
  return true;
}

absl::StatusOr<std::optional<std::string>> LogFile::Next(bool last) {
  while (lines_.empty() && !failed_) {
    const absl::StatusOr<bool> read = Read();
    failed_ = !read.ok();
    WEIR_RETURN_IF_ERROR(read.status());
    if (!*read) {
      break;
    }
  }
  if (lines_.empty() && last) {
    if (std::string rest = cutter_.TakeRest(); !rest.empty()) {
      return rest;
    }
  }
  if (lines_.empty()) {
    return std::nullopt;
  }
  std::string line = std::move(lines_.front());
  lines_.pop_front();
  return line;
}

}  // namespace weir
