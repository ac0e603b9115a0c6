#include "proto/admin/http_listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/exhausted.h"
#include "common/base/limits.h"
#include "common/base/status.h"

namespace weir {
namespace {

using std::chrono::nanoseconds;

// Where accept fails, for lack of descriptors most often: until the next try.
constexpr std::chrono::milliseconds kAcceptPause{100};

constexpr char kHeadEnd[] = "\r\n\r\n";
constexpr char kHeadTooLarge[] =
    "HTTP/1.1 431 Request Header Fields Too Large\r\n"
    "Connection: close\r\nContent-Length: 0\r\n\r\n";

int64_t ThreadCpuNs() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Whether an error of a socket only says that it is not ready.
bool IsNotReady(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

bool IsLoopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  return address.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

int PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// Binds and listens. Returns errno, or 0.
int ListenAt(const addrinfo& where, FileDescriptor* listener) {
  FileDescriptor made(
      socket(where.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int yes = 1;
  // A task that is started again takes its port although connections of the
  // process before it have not run out.
  setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (!made.valid() || bind(made.get(), where.ai_addr, where.ai_addrlen) != 0 ||
      listen(made.get(), kAdminBacklog) != 0) {
    return errno;
  }
  *listener = std::move(made);
  return 0;
}

}  // namespace

HttpListener::HttpListener(Options options)
    : options_(std::move(options)),
      budget_(kAdminCoreShare, nanoseconds(kAdminBurst).count()) {}

absl::StatusOr<std::unique_ptr<HttpListener>> HttpListener::Open(
    Options options) {
  std::unique_ptr<HttpListener> listener(new HttpListener(std::move(options)));
  WEIR_RETURN_IF_ERROR(listener->Listen());
  return listener;
}

absl::Status HttpListener::Start() {
  WEIR_ASSIGN_OR_RETURN(thread_, StartThread([this] { Run(); }));
  return absl::OkStatus();
}

absl::Status HttpListener::Listen() {
  const std::string where = absl::StrCat(options_.address, ":", options_.port);
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int unknown =
      getaddrinfo(options_.address.c_str(), absl::StrCat(options_.port).c_str(),
                  &hints, &found);
  if (unknown != 0) {
    return Invalid("the admin port's address ", where,
                   " is unknown: ", gai_strerror(unknown));
  }
  const int error = ListenAt(*found, &socket_);
  freeaddrinfo(found);
  if (error == EADDRINUSE) {
    return Invalid("the admin port ", where,
                   " is in use: give --admin_port another number, or 0 for a "
                   "free one");
  }
  if (error != 0) {
    return Invalid("the admin port cannot be opened at ", where, ": ",
                   strerror(error));  // NOLINT: glibc's has a buffer by thread
  }
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
  port_ = PortOf(address);
  is_loopback_ = IsLoopback(address);
  stop_ = FileDescriptor(eventfd(0, EFD_CLOEXEC));
  if (!stop_.valid()) {
    return absl::ResourceExhaustedError("no descriptor for the admin port");
  }
  return absl::OkStatus();
}

HttpListener::~HttpListener() {
  stopping_ = true;
  const uint64_t one = 1;
  if (stop_.valid()) {
    // It cannot fail: the counter is far from its end.
    [[maybe_unused]] const ssize_t done = write(stop_.get(), &one, sizeof(one));
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

void HttpListener::Run() {
  pthread_setname_np(pthread_self(), "weir_admin");
  budget_.PauseNs(ThreadCpuNs(), options_.clock->NowNs());  // it begins here
  while (!stopping_) {
    Wait();
    AcceptAll();
    for (const auto& connection : connections_) {
      Serve(connection.get());
    }
    std::erase_if(connections_, [](const auto& c) { return c->over; });
    // I1.
    Pause(budget_.PauseNs(ThreadCpuNs(), options_.clock->NowNs()));
  }
}

void HttpListener::Wait() {
  std::vector<pollfd> waits = {
      {.fd = stop_.get(), .events = POLLIN, .revents = 0}};
  // Others stay in the kernel until one of these is over.
  if (connections_.size() < kAdminConnectionsMax) {
    waits.push_back({.fd = socket_.get(), .events = POLLIN, .revents = 0});
  }
  int timeout_ms = -1;
  const int64_t now_ns = options_.clock->NowNs();
  for (const auto& connection : connections_) {
    const short event = connection->out.empty() ? POLLIN : POLLOUT;  // NOLINT
    waits.push_back(
        {.fd = connection->socket.get(), .events = event, .revents = 0});
    const int64_t left_ns =
        std::max<int64_t>(connection->deadline_ns - now_ns, 0);
    const auto left_ms = static_cast<int>(left_ns / 1'000'000 + 1);
    timeout_ms = timeout_ms < 0 ? left_ms : std::min(timeout_ms, left_ms);
  }
  poll(waits.data(), waits.size(), timeout_ms);
}

void HttpListener::AcceptAll() {
  while (connections_.size() < kAdminConnectionsMax) {
    FileDescriptor socket(
        accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (!IsNotReady(errno) && errno != ECONNABORTED) {
        Pause(nanoseconds(kAcceptPause).count());
      }
      return;
    }
    auto connection = std::make_unique<Connection>();
    connection->socket = std::move(socket);
    connection->deadline_ns =
        options_.clock->NowNs() + nanoseconds(kAdminReadWait).count();
    connections_.push_back(std::move(connection));
  }
}

void HttpListener::Serve(Connection* connection) {
  if (connection->out.empty()) {
    Receive(connection);
  }
  if (!connection->over && !connection->out.empty()) {
    Send(connection);
  }
  // I2. What it has sent until now was looked at first: it may have been this
  // thread that paused.
  if (options_.clock->NowNs() >= connection->deadline_ns) {
    connection->over = true;
  }
}

void HttpListener::Receive(Connection* connection) {
  std::string& in = connection->in;
  char bytes[kAdminHeadBytesMax];
  const ssize_t count = recv(connection->socket.get(), bytes, sizeof(bytes), 0);
  if (count <= 0) {
    connection->over = count == 0 || !IsNotReady(errno);
    return;
  }
  in.append(bytes, static_cast<size_t>(count));
  const size_t end = in.find(kHeadEnd);
  const size_t head_bytes =
      end == std::string::npos ? in.size() : end + strlen(kHeadEnd);
  if (head_bytes > kAdminHeadBytesMax) {
    connection->out = kHeadTooLarge;
  } else if (end != std::string::npos) {
    // What follows is dropped (I3).
    connection->out =
        options_.answer(absl::string_view(in).substr(0, head_bytes));
    connection->over = connection->out.empty();
  }
  if (!connection->out.empty()) {
    connection->deadline_ns =
        options_.clock->NowNs() + nanoseconds(kAdminWriteWait).count();
  }
}

void HttpListener::Send(Connection* connection) {
  const std::string& out = connection->out;
  const ssize_t count =
      send(connection->socket.get(), out.data() + connection->sent,
           out.size() - connection->sent, MSG_NOSIGNAL);
  if (count < 0) {
    connection->over = !IsNotReady(errno);
    return;
  }
  connection->sent += static_cast<size_t>(count);
  if (connection->sent == out.size()) {
    // What of a body has come is read, because the kernel would cut off a
    // client whose bytes nobody took, before it has the answer.
    char bytes[kAdminHeadBytesMax];
    [[maybe_unused]] const ssize_t rest =
        recv(connection->socket.get(), bytes, sizeof(bytes), 0);
    shutdown(connection->socket.get(), SHUT_WR);
    connection->over = true;
  }
}

void HttpListener::Pause(int64_t ns) {
  const int64_t until_ns = options_.clock->NowNs() + ns;
  while (!stopping_) {
    const int64_t left_ns = until_ns - options_.clock->NowNs();
    if (left_ns <= 0) {
      return;
    }
    pollfd wait = {.fd = stop_.get(), .events = POLLIN, .revents = 0};
    poll(&wait, 1,
         static_cast<int>(std::min<int64_t>(left_ns / 1'000'000 + 1, 60'000)));
  }
}

}  // namespace weir
