#include "deploy/launcher/child_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <random>

#include "absl/strings/str_cat.h"

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

// Runs in the child after fork: async-signal-safe calls only.
[[noreturn]] void BecomeChild(char* const* argv, char* const* environment,
                              int log_fd, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) {
    _exit(127);  // the launcher died before the line above
  }
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  const int null_fd = open("/dev/null", O_RDONLY);
  dup2(null_fd, STDIN_FILENO);
  dup2(log_fd, STDOUT_FILENO);
  dup2(log_fd, STDERR_FILENO);
  execve(argv[0], argv, environment);
  _exit(127);
}

}  // namespace

absl::StatusOr<pid_t> StartChild(const ChildCommand& command) {
  if (access(command.argv[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat(command.argv[0], " is not there; run ./weir build first"));
  }
  const int log_fd = open(command.log_path.c_str(),
                          O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_fd < 0) {
    return absl::ErrnoToStatus(errno, command.log_path);
  }
  std::vector<std::string> environment = command.environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.push_back(*entry);
  }
  const std::vector<char*> argv = Pointers(command.argv);
  const std::vector<char*> envp = Pointers(environment);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    BecomeChild(argv.data(), envp.data(), log_fd, parent);
  }
  const int error = errno;
  close(log_fd);
  if (pid < 0) {
    return absl::ErrnoToStatus(error, absl::StrCat("fork ", command.argv[0]));
  }
  return pid;
}

std::optional<int> ReapChild(pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, WNOHANG) != pid) {
    return std::nullopt;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

absl::StatusOr<int> FreePort() {
  static std::atomic<uint32_t> next{std::random_device()()};
  for (int tries = 0; tries < kPortCount; ++tries) {
    const int port = kFirstPort + static_cast<int>(next++ % kPortCount);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool is_free =
        bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    close(fd);
    if (is_free) {
      return port;
    }
  }
  return absl::UnavailableError(absl::StrCat("no free port on 127.0.0.1 from ",
                                             kFirstPort, " to ",
                                             kFirstPort + kPortCount - 1));
}

}  // namespace weir
