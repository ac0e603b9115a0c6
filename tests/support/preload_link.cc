// A library that is preloaded into a program and slows some of its connections.
//
//   LD_PRELOAD=preload_link.so WEIR_TEST_LINK_PORTS=2222,2223
//   WEIR_TEST_LINK_NS_PER_BYTE=50 WEIR_TEST_LINK_DELAY_US=200 weir_worker ...
//
// Every sendmsg() and recvmsg() on a TCP connection to one of these ports
// sleeps for the delay and for as long as a link of that speed takes.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <cstdint>

namespace {

int64_t Number(const char* name) {
  const char* const text = getenv(name);  // NOLINT: set before main
  return text == nullptr ? 0 : atoll(text);
}

bool IsSlow(int socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return false;
  }
  int port = -1;
  if (address.ss_family == AF_INET) {
    port = ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  } else if (address.ss_family == AF_INET6) {
    port = ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
  }
  const char* ports = getenv("WEIR_TEST_LINK_PORTS");  // NOLINT
  while (ports != nullptr && *ports != '\0') {
    if (atoi(ports) == port) {
      return true;
    }
    ports = strchr(ports, ',');
    ports = ports == nullptr ? nullptr : ports + 1;
  }
  return false;
}

void SleepFor(int socket, ssize_t bytes) {
  if (bytes <= 0 || !IsSlow(socket)) {
    return;
  }
  static const int64_t per_byte_ns = Number("WEIR_TEST_LINK_NS_PER_BYTE");
  static const int64_t delay_us = Number("WEIR_TEST_LINK_DELAY_US");
  const int64_t ns = bytes * per_byte_ns + delay_us * 1000;
  const timespec time = {ns / 1'000'000'000, ns % 1'000'000'000};
  const int error = errno;
  nanosleep(&time, nullptr);
  errno = error;
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  static const auto next =
      Next<ssize_t (*)(int, const msghdr*, int)>("sendmsg");
  const ssize_t bytes = next(socket, message, flags);
  SleepFor(socket, bytes);
  return bytes;
}

extern "C" ssize_t recvmsg(int socket, msghdr* message, int flags) {
  static const auto next = Next<ssize_t (*)(int, msghdr*, int)>("recvmsg");
  const ssize_t bytes = next(socket, message, flags);
  SleepFor(socket, bytes);
  return bytes;
}
