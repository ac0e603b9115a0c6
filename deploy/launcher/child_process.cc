#include "deploy/launcher/child_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/io/file_descriptor.h"

namespace weir {
namespace {

// Below the ports that the kernel gives to outgoing connections (32768 up), so
// that none of them takes one before its server listens.
constexpr int kFirstPort = 10000;
constexpr int kPortCount = 22000;

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) {
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

// Returns `ours` and those variables of this process that `ours` does not name.
// No name may come twice: programs differ in which of the two they take.
std::vector<std::string> Environment(const std::vector<std::string>& ours) {
  std::vector<std::string> result = ours;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const absl::string_view inherited = *entry;
    const absl::string_view name = inherited.substr(0, inherited.find('='));
    const auto names_it = [name](const std::string& text) {
      return text.size() > name.size() && text[name.size()] == '=' &&
             absl::StartsWith(text, name);
    };
    if (std::none_of(ours.begin(), ours.end(), names_it)) {
      result.emplace_back(inherited);
    }
  }
  return result;
}

struct ChildFds {
  int out = -1;
  int err = -1;
  int failure = -1;  // errno goes here when exec fails; closed by exec
};

// Runs in the child after fork, where only async-signal-safe calls are allowed:
// another thread may have held malloc's lock at that moment.
[[noreturn]] void BecomeChild(char* const* argv, char* const* environment,
                              const ChildFds& fds, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) {
    _exit(127);  // the launcher died before the line above
  }
  // Before exec, for which Spawn waits: when it returns, a signal to the group
  // reaches this child.
  setpgid(0, 0);
  // exec keeps the mask of the thread that forked, and a child that starts with
  // SIGTERM blocked could not be stopped.
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  const int null_fd = open("/dev/null", O_RDONLY);
  dup2(null_fd, STDIN_FILENO);
  dup2(fds.out, STDOUT_FILENO);
  dup2(fds.err, STDERR_FILENO);
  execve(argv[0], argv, environment);
  const int error = errno;
  // The parent reads the reason from the pipe and returns it as its status; the
  // exit code tells only whether the reason could be handed over.
  const ssize_t written = write(fds.failure, &error, sizeof(error));
  _exit(written == sizeof(error) ? 127 : 126);
}

// Forks and waits until the child has become `command`.
absl::StatusOr<pid_t> Spawn(const ChildCommand& command, int out, int err) {
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("pipe ", command.argv[0]));
  }
  const std::vector<std::string> environment = Environment(command.environment);
  const std::vector<char*> argv = Pointers(command.argv);
  const std::vector<char*> envp = Pointers(environment);
  const ChildFds fds = {.out = out, .err = err, .failure = failure[1]};
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    BecomeChild(argv.data(), envp.data(), fds, parent);
  }
  const int fork_error = errno;
  close(failure[1]);
  if (pid < 0) {
    close(failure[0]);
    return absl::ErrnoToStatus(fork_error,
                               absl::StrCat("fork ", command.argv[0]));
  }
  // Now the child alone holds the writing end, with O_CLOEXEC: the read ends
  // with 0 bytes once exec has succeeded, and with errno when it has failed.
  int error = 0;
  ssize_t bytes = 0;
  do {
    bytes = read(failure[0], &error, sizeof(error));
  } while (bytes < 0 && errno == EINTR);
  close(failure[0]);
  if (bytes == sizeof(error)) {
    waitpid(pid, nullptr, 0);
    const absl::Status why = absl::ErrnoToStatus(
        error, absl::StrCat(command.argv[0], " cannot be run"));
    return absl::InvalidArgumentError(why.message());
  }
  return pid;
}

// How a child ended. `options` are further ones of waitid.
std::optional<int> EndOf(pid_t pid, int options) {
  siginfo_t info = {};
  // With WNOHANG, waitid also returns 0 while the child runs; si_pid is then
  // left at 0.
  if (waitid(P_PID, static_cast<id_t>(pid), &info,
             WEXITED | WNOHANG | options) != 0 ||
      info.si_pid != pid) {
    return std::nullopt;
  }
  if (info.si_code == CLD_EXITED) {
    return info.si_status;
  }
  return 128 + info.si_status;  // killed by this signal, as a shell reports it
}

}  // namespace

absl::StatusOr<pid_t> StartChild(const ChildCommand& command) {
  // exec would notice it, too. Asking first gives the common mistake, a build
  // that was never made, a message that says what to do.
  if (access(command.argv[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat(command.argv[0], " is not there; run ./weir build first"));
  }
  if (command.stdout_fd >= 0 && command.stderr_fd >= 0) {
    return Spawn(command, command.stdout_fd, command.stderr_fd);
  }
  const FileDescriptor log(open(command.log_path.c_str(),
                                O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                                0600));
  if (!log.valid()) {
    return absl::ErrnoToStatus(errno, command.log_path);
  }
  return Spawn(command, log.get(), log.get());
}

std::optional<int> ReapChild(pid_t pid) { return EndOf(pid, 0); }

std::optional<int> ChildEnd(pid_t pid) { return EndOf(pid, WNOWAIT); }

absl::StatusOr<int> FreePort() {
  // Jobs that start at the same time begin at different places, so that they
  // rarely pick a port between the other's look and its server's bind.
  static std::atomic<uint32_t> next{std::random_device()()};
  for (int tries = 0; tries < kPortCount; ++tries) {
    const int port = kFirstPort + static_cast<int>(next++ % kPortCount);
    const FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address),
             sizeof(address)) == 0) {
      return port;
    }
  }
  return absl::UnavailableError(absl::StrCat("no free port on 127.0.0.1 from ",
                                             kFirstPort, " to ",
                                             kFirstPort + kPortCount - 1));
}

}  // namespace weir
