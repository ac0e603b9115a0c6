#include "tests/support/chaos_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/check.h"

namespace weir {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// Copies until either side ends, then passes the end on.
void Copy(int from, int to) {
  char buffer[65536];
  for (;;) {
    const ssize_t got = recv(from, buffer, sizeof(buffer), 0);
    if (got <= 0) {
      break;
    }
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

// The close that follows sends RST.
void Linger(int fd) {
  const linger reset = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
}

}  // namespace

ChaosProxy::ChaosProxy(const std::string& target)
    : target_port_(std::stoi(target.substr(target.rfind(':') + 1))) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
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
  stop_ = true;
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
    connection->up = std::thread(Copy, client, server);
    connection->down = std::thread(Copy, server, client);
    MutexLock lock(&mutex_);
    connections_.push_back(std::move(connection));
  }
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
