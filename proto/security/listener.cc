#include "proto/security/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "common/threads/thread.h"

namespace weir {
namespace {

constexpr int kBacklog = 512;
// After an accept that failed: trying again at once would burn a core.
constexpr auto kPause = std::chrono::milliseconds(50);
// A connection whose peer is gone without a word ends after this time without
// an acknowledgement.
constexpr int kUserTimeoutMs = 60000;
constexpr int64_t kSecondNs = 1'000'000'000;

std::string ErrnoText(int error) {
  return std::generic_category().message(error);
}

absl::Status CannotListen(const std::string& address, const std::string& why) {
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address, ": ", why));
}

// How gRPC names the other end: an IPv4 address inside of IPv6 by itself.
std::string PeerName(const sockaddr_storage& from) {
  char text[INET6_ADDRSTRLEN] = "";
  if (from.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(from);
    inet_ntop(AF_INET, &in.sin_addr, text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(in.sin_port));
  }
  const auto& in6 = reinterpret_cast<const sockaddr_in6&>(from);
  if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
    inet_ntop(AF_INET, in6.sin6_addr.s6_addr + 12, text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(in6.sin6_port));
  }
  inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof(text));
  return absl::StrCat("ipv6:%5B", text, "%5D:", ntohs(in6.sin6_port));
}

// The kernel's number of a socket; 0 if `fd` is no socket any more.
uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t bytes = sizeof(cookie);
  if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &bytes) != 0) {
    return 0;
  }
  return cookie;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Create(
    Options options, grpc::ServerBuilder* builder) {
  std::unique_ptr<Listener> listener(new Listener(std::move(options)));
  WEIR_RETURN_IF_ERROR(listener->Listen());
  listener->stop_ = FileDescriptor(eventfd(0, EFD_CLOEXEC));
  listener->reserve_ = FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!listener->stop_.valid() || !listener->reserve_.valid()) {
    return CannotListen(listener->options_.address, ErrnoText(errno));
  }
  using Experimental = grpc::ServerBuilder::experimental_type;
  listener->acceptor_ = builder->experimental().AddExternalConnectionAcceptor(
      Experimental::ExternalConnectionType::FROM_FD,
      listener->options_.credentials);
  return listener;
}

absl::Status Listener::Listen() {
  const std::string& address = options_.address;
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return Invalid("address \"", address, "\" is not host:port");
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
  if (error != 0) {
    return CannotListen(address, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found,
                                                                 freeaddrinfo);
  // A name may stand for several addresses. One of them must do; those of a
  // family that this host does not have are left out.
  absl::Status status;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int failure = ListenAt(*at);
    if (failure != 0) {
      status = CannotListen(address, ErrnoText(failure));
    }
    // A port that another process has is never shared with it.
    if (failure == EADDRINUSE) {
      return status;
    }
  }
  return listeners_.empty() ? status : absl::OkStatus();
}

int Listener::ListenAt(const addrinfo& at) {
  FileDescriptor fd(
      socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int one = 1;
  const int zero = 0;
  // Lingering connections of an earlier process do not count.
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (at.ai_family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
  }
  sockaddr_storage bound = {};
  memcpy(&bound, at.ai_addr, at.ai_addrlen);
  if (port_ != 0) {  // the port that the first of the addresses got
    const uint16_t port = htons(static_cast<uint16_t>(port_));
    if (at.ai_family == AF_INET6) {
      reinterpret_cast<sockaddr_in6&>(bound).sin6_port = port;
    } else {
      reinterpret_cast<sockaddr_in&>(bound).sin_port = port;
    }
  }
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&bound), at.ai_addrlen) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return errno;
  }
  socklen_t bytes = sizeof(bound);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &bytes);
  // Both families have the port at the same place.
  port_ = ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  listeners_.push_back(std::move(fd));
  return 0;
}

void Listener::Start() {
  thread_ = Thread([this] { AcceptLoop(); });
}

void Listener::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof(one));
    thread_.join();
  }
  // Whoever connects from now on is refused, and does not wait in a queue.
  listeners_.clear();
}

Listener::~Listener() { Stop(); }

void Listener::AcceptLoop() {
  std::vector<pollfd> waits;
  waits.push_back({.fd = stop_.get(), .events = POLLIN, .revents = 0});
  for (const FileDescriptor& listener : listeners_) {
    waits.push_back({.fd = listener.get(), .events = POLLIN, .revents = 0});
  }
  for (;;) {
    if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) {
      LOG_ERROR("cannot wait for connections: {}", ErrnoText(errno));
      return;
    }
    if (waits[0].revents != 0) {
      return;
    }
    for (size_t i = 1; i < waits.size(); ++i) {
      if (waits[i].revents != 0) {
        Accept(waits[i].fd);
      }
    }
  }
}

void Listener::Accept(int listener) {
  sockaddr_storage from = {};
  socklen_t bytes = sizeof(from);
  const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&from), &bytes,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    if (errno == EMFILE || errno == ENFILE) {
      TurnAway(listener);
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      LOG_WARN("accepting a connection: {}", ErrnoText(errno));
      Clock::Real()->SleepFor(kPause);
    }
    return;
  }
  const int one = 1;
  const int timeout = kUserTimeoutMs;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
  {
    MutexLock lock(&mutex_);
    ++counts_.accepted;
    Sweep();
    if (!MakeRoom()) {
      ++counts_.closed;
      close(fd);
      return;
    }
    Connection connection;
    connection.peer = PeerName(from);
    connection.fd = fd;
    connection.cookie = CookieOf(fd);
    // A kernel without cookies does not tell when the descriptor is somebody
    // else's: nothing may be closed by it then, so nothing is counted.
    if (connection.cookie != 0) {
      connections_.push_back(connection);
      by_peer_[connection.peer] = std::prev(connections_.end());
      ++unproven_;
    }
  }
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
      parameters;
  parameters.listener_fd = listener;
  parameters.fd = fd;  // gRPC's from here on
  acceptor_->HandleNewConnection(&parameters);
}

// I2.
void Listener::TurnAway(int listener) {
  static std::atomic<int64_t> said_s{-1};
  const int64_t now_s = Clock::Real()->NowNs() / kSecondNs;
  if (said_s.exchange(now_s) != now_s) {
    LOG_WARN(
        "no file descriptor is left: connections are turned away until others "
        "are closed; raise `ulimit -n`");
  }
  reserve_ = FileDescriptor();
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd >= 0) {
    close(fd);
  }
  reserve_ = FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Clock::Real()->SleepFor(kPause);
}

void Listener::Sweep() {
  for (auto it = connections_.begin(); it != connections_.end();) {
    const auto connection = it++;
    if (CookieOf(connection->fd) != connection->cookie) {
      Forget(connection);
    }
  }
}

void Listener::Forget(Connections::iterator connection) {
  if (!connection->proven) {
    --unproven_;
    ++counts_.failed;
  }
  const auto name = by_peer_.find(connection->peer);
  if (name != by_peer_.end() && name->second == connection) {
    by_peer_.erase(name);
  }
  connections_.erase(connection);
}

void Listener::Close(Connections::iterator connection) {
  // gRPC closes the descriptor when it finds the connection at its end.
  if (CookieOf(connection->fd) == connection->cookie) {
    shutdown(connection->fd, SHUT_RDWR);
  }
  ++counts_.closed;
  if (options_.on_closed) {
    options_.on_closed(connection->peer);
  }
  Forget(connection);
}

// I1.
bool Listener::MakeRoom() {
  const bool full =
      static_cast<int>(connections_.size()) >= options_.connections_max;
  if (!full && unproven_ < options_.unproven_max) {
    return true;
  }
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    if (!it->proven) {
      Close(it);
      return true;
    }
  }
  return false;
}

void Listener::MarkProven(const std::string& peer) {
  MutexLock lock(&mutex_);
  const auto found = by_peer_.find(peer);
  if (found != by_peer_.end() && !found->second->proven) {
    found->second->proven = true;
    --unproven_;
    ++counts_.proven;
  }
}

void Listener::CountEmptyCall(const std::string& peer) {
  MutexLock lock(&mutex_);
  const auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) {
    return;
  }
  Connection& connection = *found->second;
  const int64_t second = Clock::Real()->NowNs() / kSecondNs;
  if (second != connection.second) {
    connection.second = second;
    connection.empty_calls = 0;
  }
  if (++connection.empty_calls > kEmptyCallsPerSecond) {
    LOG_WARN("{} begins and drops calls; its connection is closed", peer);
    Close(found->second);
  }
}

Listener::Counts Listener::counts() const {
  MutexLock lock(&mutex_);
  return counts_;
}

void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

}  // namespace weir
