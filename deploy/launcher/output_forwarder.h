// Shows what many tasks print as whole lines, each with its task before it.
//
//   [worker/0] loss 0.31
//   [ps/1] ...
//
// Place: between the pipes that are the children's stdout and stderr and the
// launcher's own two. One thread reads and writes, so a caller of Open, Note or
// Tail never waits for a terminal.
//
// Terms
//   line   a text up to \n, \r or \r\n. The last line of a pipe may end with
//          the pipe.
//
// Invariants
//   I1. Lines are never mixed. A line of more than line_bytes_max bytes is
//       shown as several.
//   I2. Nothing is lost while the launcher's outputs take it. An output that
//       takes no more (a closed pipe, a terminal that is gone) is given up, and
//       the other one goes on.
//   I3. A log file gets the bytes as they came.
//
// Threads: safe, but Finish and the destructor are called by one thread, last.
#ifndef DEPLOY_LAUNCHER_OUTPUT_FORWARDER_H_
#define DEPLOY_LAUNCHER_OUTPUT_FORWARDER_H_

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "common/io/file_descriptor.h"

namespace weir {

// Cuts a stream of bytes into lines.
class LineCutter {
 public:
  explicit LineCutter(size_t line_bytes_max)
      : line_bytes_max_(line_bytes_max) {}

  // Returns the lines that `bytes` complete, without their ends. A \r with
  // nothing before it makes no empty line, so "\r 10%\r 20%\r" is two lines.
  std::vector<std::string> Add(absl::string_view bytes);
  // Returns what came after the end of the last line, and forgets it.
  std::string TakeRest();

 private:
  const size_t line_bytes_max_;  // a cut falls between characters of UTF-8
  std::string rest_;
  bool after_return_ = false;
};

class OutputForwarder {
 public:
  struct Options {
    int out_fd = 1;
    int err_fd = 2;
    bool show = true;  // false: what tasks print goes to logs and tails alone
    size_t line_bytes_max = 8192;
    size_t tail_lines = 20;
  };
  // The ends that a child writes to.
  struct Pipes {
    FileDescriptor out;
    FileDescriptor err;
  };

  // Starts the thread. Errors: the system's.
  static absl::StatusOr<std::unique_ptr<OutputForwarder>> Create(
      const Options& options);
  // Calls Finish, without waiting for pipes that are open.
  ~OutputForwarder();

  // Makes the pipes for one start of `task`. What it prints is also appended to
  // the file `log_path`, unless that is "". Errors: the log file's, or the
  // system's.
  absl::StatusOr<Pipes> Open(const std::string& task,
                             const std::string& log_path);
  // Shows `line` on stderr, after what tasks had printed by now.
  void Note(const std::string& line);
  // Returns the last lines of the newest start of `task`, oldest first. Its two
  // pipes share these tail_lines. A new line replaces the oldest one of the
  // pipe that has more of them, so that much output does not hide an error.
  std::vector<std::string> Tail(const std::string& task);
  // Forwards until every pipe is closed by those who write to it, for at most
  // `patience`; then forwards what is there and ends the thread.
  void Finish(std::chrono::nanoseconds patience);

 private:
  struct Line {
    bool is_error;
    std::string text;
  };
  // One start of one task.
  struct Run {
    std::string prefix;
    FileDescriptor log;
    std::deque<Line> tail;
  };
  struct Stream {
    FileDescriptor fd;
    bool is_error;
    std::shared_ptr<Run> run;
    LineCutter cutter;
  };

  explicit OutputForwarder(const Options& options) : options_(options) {}

  void Loop();
  // Waits for bytes, notes or Finish. Returns true when the last round is due.
  bool Wait();
  // Reads what one pipe has. Returns false at its end.
  bool Read(Stream* stream);
  void Show(Stream* stream, const std::vector<std::string>& lines);
  void AddToTail(const Stream& stream, const std::vector<std::string>& lines);
  void Write(bool is_error, absl::string_view text);
  void Wake();

  const Options options_;
  FileDescriptor wake_;
  std::thread thread_;

  // Only the thread uses these.
  std::vector<std::unique_ptr<Stream>> streams_;
  bool given_up_[2] = {false, false};  // stdout, stderr

  Mutex mutex_;
  std::vector<std::unique_ptr<Stream>> added_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> notes_ ABSL_GUARDED_BY(mutex_);
  // The tails of all runs are guarded, too.
  std::map<std::string, std::shared_ptr<Run>> newest_ ABSL_GUARDED_BY(mutex_);
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point finish_by_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_OUTPUT_FORWARDER_H_
