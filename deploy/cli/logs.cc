// weir logs: shows the logs of a run's tasks as one, by time.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/exit_code.h"
#include "common/base/logging.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/io/files.h"
#include "common/objects/any_store.h"
#include "deploy/cli/command.h"
#include "deploy/logs/log_files.h"
#include "deploy/logs/log_merge.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/task/job_flags.h"

namespace weir {
namespace {

using Seconds = std::chrono::duration<double>;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookForLinesEvery{200};
// May be a call to an object store.
constexpr std::chrono::seconds kLookForEndEvery{1};
// After its end a run still logs how its tasks end.
constexpr std::chrono::seconds kQuietAtEnd{2};
constexpr size_t kWriteBytes = 64 << 10;

struct Options {
  std::string dir;  // "" for the run under runs/ that logged last
  std::string checkpoints;
  std::vector<std::string> tasks;  // "worker/0" or "worker"; empty for all
  std::string level = "debug";
  bool follow = false;
  std::string output = "text";
};

// Returns the run whose log was written last.
absl::StatusOr<std::string> NewestRun() {
  const auto runs = Files::Real()->List("runs");
  std::pair<std::filesystem::file_time_type, std::string> newest;
  // No folder runs/ is the same as an empty one.
  for (const std::string& run : runs.value_or(std::vector<std::string>())) {
    const std::string folder = absl::StrCat("runs/", run, "/logs");
    const auto tasks = ListLogs(Files::Real(), folder);
    for (const TaskId& task : tasks.value_or(std::vector<TaskId>())) {
      std::error_code error;
      const auto time =
          std::filesystem::last_write_time(LogPath(folder, task), error);
      if (!error && (newest.second.empty() || time > newest.first)) {
        newest = {time, absl::StrCat("runs/", run)};
      }
    }
  }
  if (newest.second.empty()) {
    return Invalid("no run under runs/ has logs; name a run's directory");
  }
  std::fprintf(stderr, "weir logs: %s\n", newest.second.c_str());
  return newest.second;
}

// Writes lines to stdout, many at a time.
class Output {
 public:
  absl::Status Add(const std::string& line) {
    text_ += line;
    text_ += '\n';
    return text_.size() < kWriteBytes ? absl::OkStatus() : Flush();
  }
  absl::Status Flush() {
    absl::string_view left = text_;
    while (!left.empty()) {
      const ssize_t bytes = write(STDOUT_FILENO, left.data(), left.size());
      if (bytes < 0 && errno != EINTR) {
        return absl::ErrnoToStatus(errno, "write to the standard output");
      }
      left.remove_prefix(static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
    }
    text_.clear();
    return absl::OkStatus();
  }

 private:
  std::string text_;
};

// All logs of one run.
class RunLogs {
 public:
  RunLogs(std::string folder, const Options& options)
      : folder_(std::move(folder)),
        tasks_wanted_(options.tasks),
        level_(*LogLevelNamed(options.level)),
        format_(options.output == "json" ? LogFormat::kJson
                                         : LogFormat::kText) {}

  // Looks for tasks that have a log now. Errors: INVALID_ARGUMENT if a task
  // that is wanted has none.
  absl::Status Find() {
    WEIR_ASSIGN_OR_RETURN(const auto tasks, ListLogs(Files::Real(), folder_));
    for (const TaskId& task : tasks) {
      if (IsWanted(task) &&
          std::find(tasks_.begin(), tasks_.end(), task) == tasks_.end()) {
        tasks_.push_back(task);
        files_.emplace_back(Files::Real(), LogPath(folder_, task));
        merge_.AddSource(task.ToString());
      }
    }
    for (const std::string& wanted : tasks_wanted_) {
      if (std::none_of(tasks_.begin(), tasks_.end(), [&](const TaskId& task) {
            return IsNamed(task, wanted);
          })) {
        return Invalid("--task ", wanted, ": no such task has a log in ",
                       folder_, "; there are ",
                       absl::StrJoin(tasks, ", ", [](auto* out, TaskId task) {
                         out->append(task.ToString());
                       }));
      }
    }
    return absl::OkStatus();
  }

  // Shows the lines that are there. `last`: no more will come. Returns whether
  // there was any. Ends early when `stop` says so.
  absl::StatusOr<bool> Show(bool last, const StopSignal* stop) {
    for (size_t source = 0; source < files_.size(); ++source) {
      Feed(source, last);
    }
    bool any = false;
    while (stop == nullptr || stop->first() == 0) {
      const std::optional<MergedLine> line = merge_.Take();
      if (!line.has_value()) {
        break;
      }
      any = true;
      if (line->line.level >= level_) {
        WEIR_RETURN_IF_ERROR(output_.Add(FormatMergedLine(*line, format_)));
      }
      Feed(line->source, last);
    }
    WEIR_RETURN_IF_ERROR(output_.Flush());
    return any;
  }

  // OK, or why the first of the files that failed cannot be read.
  const absl::Status& status() const { return status_; }

 private:
  static bool IsNamed(const TaskId& task, const std::string& name) {
    return name == task.ToString() || name == RoleName(task.role);
  }

  bool IsWanted(const TaskId& task) const {
    return tasks_wanted_.empty() ||
           std::any_of(
               tasks_wanted_.begin(), tasks_wanted_.end(),
               [&](const std::string& name) { return IsNamed(task, name); });
  }

  // A file that cannot be read is named, and hides none of the others.
  void Feed(size_t source, bool last) {
    if (!merge_.IsHungry(source)) {
      return;
    }
    const auto line = files_[source].Next(last);
    if (!line.ok()) {
      std::fprintf(
          stderr, "weir: %s\n",
          Printable(line.status().message(), kPeerMessageBytesMax).c_str());
      status_.Update(line.status());
    } else if (line->has_value()) {
      merge_.Offer(source, **line);
    }
  }

  const std::string folder_;
  const std::vector<std::string> tasks_wanted_;
  const LogLevel level_;
  const LogFormat format_;
  std::vector<TaskId> tasks_;   // of each source
  std::vector<LogFile> files_;  // of each source
  LogMerge merge_;
  Output output_;
  absl::Status status_;
};

// Whether a run has ended, which its chief says beside its checkpoints.
bool HasEnded(const std::string& place) {
  for (const char* const name : {kDoneName, kEndedName}) {
    if (AnyStore()->Exists(JoinPath(place, name)).value_or(false)) {
      return true;
    }
  }
  return false;
}

// Shows lines as they come, until the run has ended or a signal comes. Returns
// the exit code.
absl::StatusOr<int> Follow(const std::string& place, const StopSignal& stop,
                           RunLogs* logs) {
  auto shown_at = steady_clock::now();
  auto look_at = shown_at;
  bool ended = false;
  while (stop.first() == 0) {
    if (steady_clock::now() >= look_at) {
      ended = HasEnded(place);
      look_at = steady_clock::now() + kLookForEndEvery;
    }
    WEIR_RETURN_IF_ERROR(logs->Find());
    WEIR_ASSIGN_OR_RETURN(const bool any, logs->Show(/*last=*/false, &stop));
    const auto now = steady_clock::now();
    if (any) {
      shown_at = now;
    }
    if (ended && now - shown_at >= kQuietAtEnd) {
      WEIR_RETURN_IF_ERROR(logs->Show(/*last=*/true, nullptr).status());
      return kExitOk;
    }
    std::this_thread::sleep_for(kLookForLinesEvery);
  }
  return 128 + stop.first();
}

absl::StatusOr<int> Run(const Options& options) {
  std::string dir = options.dir;
  if (dir.empty()) {
    WEIR_ASSIGN_OR_RETURN(dir, NewestRun());
  }
  WEIR_ASSIGN_OR_RETURN(const std::string folder,
                        FindLogFolder(Files::Real(), dir));
  RunLogs logs(folder, options);
  int code = kExitOk;
  if (options.follow) {
    const StopSignal stop({SIGINT, SIGTERM});
    std::error_code ignored;
    const std::string run =
        std::filesystem::absolute(JoinPath(folder, ".."), ignored).string();
    WEIR_ASSIGN_OR_RETURN(
        code, Follow(PlaceOfRun(run, options.checkpoints), stop, &logs));
  } else {
    WEIR_RETURN_IF_ERROR(logs.Find());
    WEIR_RETURN_IF_ERROR(logs.Show(/*last=*/true, nullptr).status());
  }
  return code == kExitOk ? ExitCodeFor(logs.status()) : code;
}

}  // namespace

void AddLogsCommand(CLI::App* app, Command* command) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = AddSubcommand(
      app, "logs", "show the logs of a run's tasks as one, by time", options,
      Run, command);
  AddOption(sub, "dir", &options->dir,
            "the run's directory, or a folder of its logs; default the "
            "run under runs/ that logged last");
  AddOption(sub, "--task", &options->tasks,
            "of this task alone, worker/0, or of a role: worker; may be "
            "repeated")
      .OneValueEach();
  AddOption(sub, "--level", &options->level,
            "debug, info, warn or error: this level and those above it")
      .OneOf({"debug", "info", "warn", "error"})
      .ShowDefault();
  AddFlag(sub, "--follow", &options->follow,
          "show further lines as they come, until the run has ended or "
          "Ctrl-C");
  AddCheckpointsFlag(sub, &options->checkpoints);
  AddOption(sub, "--output", &options->output,
            "text, or json: each line an object")
      .OneOf({"text", "json"})
      .ShowDefault();
}

}  // namespace weir
