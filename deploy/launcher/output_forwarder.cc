#include "deploy/launcher/output_forwarder.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir {
namespace {

// As much as a pipe holds, so that one read takes all that was written before.
constexpr size_t kReadBytes = 64 << 10;

// Writes all of `text`. Returns false when `fd` takes no more.
bool WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t bytes = write(fd, text.data(), text.size());
    if (bytes > 0) {
      text.remove_prefix(static_cast<size_t>(bytes));
    } else if (errno == EAGAIN) {
      // I2: another process that shares our terminal made it non-blocking. It
      // is full for now, not gone.
      pollfd writable = {fd, POLLOUT, 0};
      poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

// Makes a pipe whose reading end does not block, since one thread reads them
// all. The writing end blocks, as programs expect of their stdout.
absl::Status MakePipe(FileDescriptor* reading, FileDescriptor* writing) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "pipe");
  }
  *reading = FileDescriptor(fds[0]);
  *writing = FileDescriptor(fds[1]);
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> LineCutter::Add(absl::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    if (after_return_ && bytes[0] == '\n') {
      bytes.remove_prefix(1);  // the \n of a \r\n
      after_return_ = false;
      continue;
    }
    after_return_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    rest_.append(bytes.substr(0, end).data(), std::min(end, bytes.size()));
    // I1: what is kept of a line without an end stays bounded.
    while (rest_.size() > line_bytes_max_) {
      size_t cut = line_bytes_max_;
      // A character of UTF-8 has at most three bytes 10xxxxxx behind its first.
      // With more of them it is another encoding, which is cut anywhere.
      for (int i = 0; i < 3 && (rest_[cut] & 0xC0) == 0x80; ++i) {
        --cut;
      }
      lines.push_back(rest_.substr(0, cut));
      rest_.erase(0, cut);
    }
    if (end == absl::string_view::npos) {
      break;
    }
    after_return_ = bytes[end] == '\r';
    // A \n alone, or a \r\n, ends an empty line; a \r alone only redraws. If
    // the bytes end between \r and \n, the empty line is not shown.
    const bool is_empty_line =
        !after_return_ || (end + 1 < bytes.size() && bytes[end + 1] == '\n');
    if (!rest_.empty() || is_empty_line) {
      lines.push_back(std::exchange(rest_, ""));
    }
    bytes.remove_prefix(end + 1);
  }
  return lines;
}

std::string LineCutter::TakeRest() { return std::exchange(rest_, ""); }

absl::StatusOr<std::unique_ptr<OutputForwarder>> OutputForwarder::Create(
    const Options& options) {
  std::unique_ptr<OutputForwarder> forwarder(new OutputForwarder(options));
  forwarder->wake_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!forwarder->wake_.valid()) {
    return absl::ErrnoToStatus(errno, "eventfd");
  }
  // Signals are for the launcher's other threads. SIGPIPE is blocked as well,
  // so a closed pipe is an error of write (I2) and does not end the launcher.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  forwarder->thread_ = std::thread([r = forwarder.get()] { r->Loop(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return forwarder;
}

OutputForwarder::~OutputForwarder() { Finish(std::chrono::nanoseconds(0)); }

void OutputForwarder::Wake() {
  const uint64_t one = 1;
  if (write(wake_.get(), &one, sizeof(one)) < 0) {
    return;  // the counter is full, so the thread is awake already
  }
}

absl::StatusOr<OutputForwarder::Pipes> OutputForwarder::Open(
    const std::string& task, const std::string& log_path) {
  auto run = std::make_shared<Run>();
  run->prefix = absl::StrCat("[", task, "] ");
  if (!log_path.empty()) {
    run->log = FileDescriptor(open(
        log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!run->log.valid()) {
      return absl::ErrnoToStatus(errno, log_path);
    }
  }
  Pipes pipes;
  FileDescriptor out;
  FileDescriptor err;
  WEIR_RETURN_IF_ERROR(MakePipe(&out, &pipes.out));
  WEIR_RETURN_IF_ERROR(MakePipe(&err, &pipes.err));
  // Both streams share the run, so its log (I3) has what they bring in the
  // order in which the thread read it.
  {
    MutexLock lock(&mutex_);
    newest_[task] = run;
    const LineCutter cutter(options_.line_bytes_max);
    added_.emplace_back(new Stream{std::move(out), false, run, cutter});
    added_.emplace_back(new Stream{std::move(err), true, run, cutter});
  }
  Wake();
  return pipes;
}

void OutputForwarder::Note(const std::string& line) {
  {
    MutexLock lock(&mutex_);
    notes_.push_back(line + "\n");
  }
  Wake();
}

std::vector<std::string> OutputForwarder::Tail(const std::string& task) {
  MutexLock lock(&mutex_);
  const auto run = newest_.find(task);
  if (run == newest_.end()) {
    return {};
  }
  std::vector<std::string> lines;
  for (const Line& line : run->second->tail) {
    lines.push_back(line.text);
  }
  return lines;
}

void OutputForwarder::Finish(std::chrono::nanoseconds patience) {
  if (!thread_.joinable()) {
    return;
  }
  {
    MutexLock lock(&mutex_);
    finishing_ = true;
    finish_by_ = std::chrono::steady_clock::now() + patience;
  }
  Wake();
  thread_.join();
}

void OutputForwarder::Write(bool is_error, absl::string_view text) {
  const int fd = is_error ? options_.err_fd : options_.out_fd;
  // I2: the other output goes on, and the pipes are read and logged as before:
  // a task must never block because nobody watches.
  if (!given_up_[is_error] && !WriteAll(fd, text)) {
    given_up_[is_error] = true;
  }
}

void OutputForwarder::Show(Stream* stream,
                           const std::vector<std::string>& lines) {
  if (lines.empty()) {
    return;
  }
  std::string text;
  for (const std::string& line : lines) {
    absl::StrAppend(&text, stream->run->prefix, line, "\n");
  }
  // I1: whole lines in one text, and only this thread writes. The tail comes
  // first, since a write may wait for a terminal for long.
  AddToTail(*stream, lines);
  if (options_.show) {
    Write(stream->is_error, text);
  }
}

void OutputForwarder::AddToTail(const Stream& stream,
                                const std::vector<std::string>& lines) {
  MutexLock lock(&mutex_);
  std::deque<Line>& tail = stream.run->tail;
  for (const std::string& line : lines) {
    tail.push_back({stream.is_error, line});
  }
  const auto is_error = [](const Line& line) { return line.is_error; };
  auto errors =
      static_cast<size_t>(std::count_if(tail.begin(), tail.end(), is_error));
  while (tail.size() > options_.tail_lines) {
    // The oldest line of the pipe that has more of them; it has at least one.
    const bool drop_error = errors > tail.size() - errors;
    tail.erase(std::find_if(tail.begin(), tail.end(), [&](const Line& line) {
      return line.is_error == drop_error;
    }));
    if (drop_error) {
      --errors;
    }
  }
}

bool OutputForwarder::Read(Stream* stream) {
  char buffer[kReadBytes];
  const ssize_t bytes = read(stream->fd.get(), buffer, sizeof(buffer));
  if (bytes < 0) {
    return errno == EAGAIN || errno == EINTR;
  }
  if (bytes == 0) {
    const std::string rest = stream->cutter.TakeRest();
    if (!rest.empty()) {
      Show(stream, {rest});
    }
    return false;
  }
  const absl::string_view text(buffer, static_cast<size_t>(bytes));
  Run* run = stream->run.get();
  // I3: before the text is cut into lines. A full disk ends the log, and the
  // terminal, which says so, goes on.
  if (run->log.valid() && !WriteAll(run->log.get(), text)) {
    const absl::Status why = absl::ErrnoToStatus(
        errno, absl::StrCat("weir: the log of ", run->prefix, "ends here"));
    Write(/*is_error=*/true, absl::StrCat(why.message(), "\n"));
    run->log = FileDescriptor();
  }
  Show(stream, stream->cutter.Add(text));
  return true;
}

bool OutputForwarder::Wait() {
  // The caller adds streams only after poll, so Open and Note wake it.
  std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}};
  for (const auto& stream : streams_) {
    fds.push_back({stream->fd.get(), POLLIN, 0});
  }
  bool finishing = false;
  int timeout_ms = -1;
  {
    MutexLock lock(&mutex_);
    finishing = finishing_;
    if (finishing && streams_.empty()) {
      timeout_ms = 0;
    } else if (finishing) {
      // Rounded up: with 0 left the next round would be the last one.
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(
          finish_by_ - std::chrono::steady_clock::now());
      timeout_ms = std::max(0, static_cast<int>(left.count()));
    }
  }
  poll(fds.data(), fds.size(), timeout_ms);
  uint64_t wakes = 0;
  const bool woken = read(wake_.get(), &wakes, sizeof(wakes)) > 0;
  // A wake means that streams or notes were added, which are taken over after
  // this; then one more round shows what they bring.
  return finishing && !woken && timeout_ms == 0;
}

void OutputForwarder::Loop() {
  bool ending = false;
  while (!ending) {
    ending = Wait();
    std::vector<std::string> notes;
    {
      MutexLock lock(&mutex_);
      notes.swap(notes_);
      for (auto& stream : added_) {
        streams_.push_back(std::move(stream));
      }
      added_.clear();
    }
    // Every stream is read, ready or not: a note is shown after all that was
    // printed before it, and a pipe holds no more than one read takes.
    std::erase_if(streams_, [this](const std::unique_ptr<Stream>& stream) {
      return !Read(stream.get());
    });
    for (const std::string& note : notes) {
      Write(/*is_error=*/true, note);
    }
  }
  // These pipes are still open: a helper outlived its task, and patience ended.
  for (const auto& stream : streams_) {
    const std::string rest = stream->cutter.TakeRest();
    if (!rest.empty()) {
      Show(stream.get(), {rest});
    }
  }
  streams_.clear();
}

}  // namespace weir
