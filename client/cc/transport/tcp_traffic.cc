#include "client/cc/transport/tcp_traffic.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/identity.h"
#include "common/io/file_descriptor.h"

namespace weir {
namespace {

// An address of either family as IPv6: gRPC's sockets are of both.
struct Endpoint {
  in6_addr address = {};
  int port = 0;

  bool operator==(const Endpoint& other) const {
    return port == other.port &&
           std::memcmp(&address, &other.address, sizeof(address)) == 0;
  }
};

// ::ffff:a.b.c.d, as the kernel shows an IPv4 peer of an IPv6 socket.
in6_addr Mapped(in_addr v4) {
  in6_addr v6 = {};
  v6.s6_addr[10] = v6.s6_addr[11] = 0xff;
  std::memcpy(&v6.s6_addr[12], &v4, sizeof(v4));
  return v6;
}

std::optional<Endpoint> ParsePeer(const std::string& peer) {
  const size_t colon = peer.rfind(':');
  Endpoint endpoint;
  if (colon == std::string::npos || colon < 5 ||
      !absl::SimpleAtoi(peer.substr(colon + 1), &endpoint.port)) {
    return std::nullopt;
  }
  std::string host = peer.substr(5, colon - 5);  // after "ipv4:" or "ipv6:"
  if (absl::StartsWith(peer, "ipv4:")) {
    in_addr v4 = {};
    if (inet_pton(AF_INET, host.c_str(), &v4) != 1) {
      return std::nullopt;
    }
    endpoint.address = Mapped(v4);
    return endpoint;
  }
  // gRPC escapes the brackets of an IPv6 address, as in a URI.
  host = absl::StrReplaceAll(host,
                             {{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}});
  host = host.substr(0, host.find('%'));  // the scope, as in fe80::1%eth0
  if (!absl::StartsWith(peer, "ipv6:") ||
      inet_pton(AF_INET6, host.c_str(), &endpoint.address) != 1) {
    return std::nullopt;
  }
  return endpoint;
}

std::optional<Endpoint> EndpointOf(const sockaddr* address) {
  Endpoint endpoint;
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    endpoint.address = Mapped(v4->sin_addr);
    endpoint.port = ntohs(v4->sin_port);
    return endpoint;
  }
  if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    endpoint.address = v6->sin6_addr;
    endpoint.port = ntohs(v6->sin6_port);
    return endpoint;
  }
  return std::nullopt;
}

std::optional<Endpoint> PeerOf(int fd) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof(storage);
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  if (getpeername(fd, address, &length) != 0) {
    return std::nullopt;
  }
  return EndpointOf(address);
}

// Calls `visit` for each socket of this process that is connected to `peer`.
// gRPC does not tell its sockets, so all descriptors are looked at.
void ForEachConnection(const std::string& peer,
                       const std::function<void(int fd)>& visit) {
  const std::optional<Endpoint> wanted = ParsePeer(peer);
  if (!wanted.has_value()) {
    return;
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> own(opendir("/proc/self/fd"),
                                                closedir);
  if (own == nullptr) {
    return;
  }
  // readdir is safe here: nobody else reads this directory stream.
  while (const dirent* entry = readdir(own.get())) {  // NOLINT
    int fd = -1;
    if (!absl::SimpleAtoi(entry->d_name, &fd) || PeerOf(fd) != wanted) {
      continue;
    }
    visit(fd);
  }
}

}  // namespace

bool IsThisHost(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  if (host == "localhost" || host == HostName() ||
      absl::StartsWith(address, "unix:")) {
    return true;
  }
  // The port does not matter here, so both sides of the comparison get 0.
  std::optional<Endpoint> wanted = ParsePeer(absl::StrCat("ipv4:", host, ":0"));
  if (!wanted.has_value()) {
    wanted = ParsePeer(absl::StrCat("ipv6:", host, ":0"));
  }
  ifaddrs* interfaces = nullptr;
  if (!wanted.has_value() || getifaddrs(&interfaces) != 0) {
    return false;
  }
  bool found = absl::StartsWith(host, "127.");  // the whole net is loopback
  for (const ifaddrs* i = interfaces; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr != nullptr) {
      std::optional<Endpoint> here = EndpointOf(i->ifa_addr);
      if (here.has_value()) {
        here->port = 0;
        found = found || *here == *wanted;
      }
    }
  }
  freeifaddrs(interfaces);
  return found;
}

int64_t TcpBytesMoved(const std::string& peer) {
  int64_t bytes = -1;
  ForEachConnection(peer, [&bytes](int fd) {
    tcp_info info = {};
    socklen_t length = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
        length >= offsetof(tcp_info, tcpi_bytes_received) +
                      sizeof(info.tcpi_bytes_received)) {
      // Acknowledged, not sent: bytes that only fill our own buffers would
      // count as a sign of life of a peer that is gone.
      bytes = std::max<int64_t>(bytes, 0) +
              static_cast<int64_t>(info.tcpi_bytes_acked) +
              static_cast<int64_t>(info.tcpi_bytes_received);
    }
  });
  return bytes;
}

int SeverTcp(const std::string& peer) {
  const std::optional<Endpoint> wanted = ParsePeer(peer);
  int severed = 0;
  ForEachConnection(peer, [&](int fd) {
    // Another thread may close `fd` meanwhile, and its number may then belong
    // to another connection. A duplicate cannot be closed under us, so the peer
    // is compared on it once more.
    const FileDescriptor held(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (held.valid() && PeerOf(held.get()) == wanted) {
      if (shutdown(held.get(), SHUT_RDWR) == 0) {
        ++severed;
      }
    }
  });
  return severed;
}

}  // namespace weir
