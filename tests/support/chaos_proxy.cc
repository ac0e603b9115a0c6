#include "tests/support/chaos_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "common/base/check.h"

namespace weir {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// Makes the close that follows send RST.
void Linger(int fd) {
  const linger reset = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
}

// Otherwise the kernel would buffer a second's bytes of a slow link.
void BufferLittle(int fd) {
  const int bytes = 16 << 10;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

}  // namespace

ChaosProxy::ChaosProxy(const std::string& target, Options options)
    : options_(options),
      target_port_(std::stoi(target.substr(target.rfind(':') + 1))) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (options_.bytes_per_s > 0) {
    BufferLittle(listener_);
  }
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof(address);
  WEIR_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), length) ==
             0);
  WEIR_CHECK(listen(listener_, 64) == 0);
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
  address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  acceptor_ = std::thread([this] { Accept(); });
}

ChaosProxy::~ChaosProxy() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    released_.NotifyAll();
  }
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  close(listener_);
  ResetAll();
}

void ChaosProxy::Accept() {
  while (!stop_) {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) {
      continue;
    }
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (options_.bytes_per_s > 0) {
      BufferLittle(client);
      BufferLittle(server);
    }
    const sockaddr_in address = Loopback(target_port_);
    if (connect(server, reinterpret_cast<const sockaddr*>(&address),
                sizeof(address)) != 0) {
      close(client);
      close(server);
      continue;
    }
    const int on = 1;
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    auto connection = std::make_unique<Connection>();
    connection->client = client;
    connection->server = server;
    connection->up = std::thread([=, this] { Copy(client, server, true); });
    connection->down = std::thread([=, this] { Copy(server, client, false); });
    MutexLock lock(&mutex_);
    connections_.push_back(std::move(connection));
  }
}

std::string* ChaosProxy::NewRecord() {
  if (!options_.record) {
    return nullptr;
  }
  MutexLock lock(&mutex_);
  return &recorded_.emplace_back();
}

void ChaosProxy::Copy(int from, int to, bool up) {
  char buffer[65536];
  // Copies as much at a time as the rate allows in 20 ms.
  const size_t piece =
      options_.bytes_per_s > 0
          ? std::clamp<size_t>(static_cast<size_t>(options_.bytes_per_s / 50),
                               1, sizeof(buffer))
          : sizeof(buffer);
  auto free_at = std::chrono::steady_clock::now();
  int64_t passed = 0;
  std::string* const record = NewRecord();
  for (;;) {
    const ssize_t got = recv(from, buffer, piece, 0);
    if (got <= 0) {
      break;
    }
    if (options_.bytes_per_s > 0) {
      free_at = std::max(free_at, std::chrono::steady_clock::now()) +
                std::chrono::nanoseconds(static_cast<int64_t>(
                    1e9 * static_cast<double>(got) / options_.bytes_per_s));
      std::this_thread::sleep_until(free_at);
    }
    if (!Pass()) {
      break;
    }
    Flip(buffer, got, up, &passed);
    if (record != nullptr) {
      record->append(buffer, static_cast<size_t>(got));
    }
    bytes_up_ += up ? got : 0;
    for (ssize_t sent = 0; sent < got;) {
      const ssize_t n = send(to, buffer + sent, got - sent, MSG_NOSIGNAL);
      if (n <= 0) {
        shutdown(from, SHUT_RDWR);
        return;
      }
      sent += n;
    }
  }
  shutdown(to, SHUT_RDWR);
}

// `passed` counts the bytes since the last flip.
void ChaosProxy::Flip(char* bytes, int64_t count, bool up, int64_t* passed) {
  // Longer than any run of equal bytes between the frames of gRPC.
  constexpr int64_t kRun = 64;
  const int64_t every = up ? flip_up_ : flip_down_;
  *passed += count;
  if (every == 0 || *passed < every) {
    return;
  }
  int64_t run = 0;
  for (int64_t i = 4; i < count; ++i) {
    run = bytes[i] == bytes[i - 4] ? run + 1 : 0;
    if (run == kRun) {
      bytes[i - kRun / 2] ^= 0x10;
      ++flipped_;
      *passed = 0;
      return;
    }
  }
}

bool ChaosProxy::Pass() {
  MutexLock lock(&mutex_);
  while (held_ && !stop_) {
    released_.Wait(&mutex_);
  }
  return !stop_;
}

void ChaosProxy::SetHeld(bool held) {
  MutexLock lock(&mutex_);
  held_ = held;
  released_.NotifyAll();
}

std::deque<std::string> ChaosProxy::Recorded() {
  ResetAll();
  MutexLock lock(&mutex_);
  return recorded_;
}

int ChaosProxy::ResetAll() {
  std::vector<std::unique_ptr<Connection>> ended;
  {
    MutexLock lock(&mutex_);
    ended.swap(connections_);
  }
  for (const auto& connection : ended) {
    Linger(connection->client);
    Linger(connection->server);
    shutdown(connection->client, SHUT_RD);
    shutdown(connection->server, SHUT_RD);
    connection->up.join();
    connection->down.join();
    close(connection->client);
    close(connection->server);
  }
  return static_cast<int>(ended.size());
}

}  // namespace weir
