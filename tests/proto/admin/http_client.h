// A client of HTTP for tests that sends what they say, byte by byte if wanted.
#ifndef TESTS_PROTO_ADMIN_HTTP_CLIENT_H_
#define TESTS_PROTO_ADMIN_HTTP_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace weir {

// One connection to a port of this host.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    // A listener that pauses lets the kernel answer or not: nobody waits long.
    const timeval wait = {.tv_sec = 20, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ =
        connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
  }
  ~RawClient() { close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  int descriptor() const { return socket_; }

  bool Send(const std::string& bytes) {
    return send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // All until the other end closes, or nothing comes for 20 s.
  std::string ReadAll() {
    std::string all;
    char bytes[4096];
    ssize_t count = 0;
    while ((count = recv(socket_, bytes, sizeof(bytes), 0)) > 0) {
      all.append(bytes, static_cast<size_t>(count));
    }
    return all;
  }

 private:
  const int socket_;
  bool connected_ = false;
};

// The whole answer to a GET; `fields` are lines with their ends.
inline std::string HttpGet(int port, const std::string& target,
                           const std::string& fields = "") {
  RawClient client(port);
  client.Send(absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: localhost:",
                           port, "\r\n", fields, "\r\n"));
  return client.ReadAll();
}

}  // namespace weir

#endif  // TESTS_PROTO_ADMIN_HTTP_CLIENT_H_
