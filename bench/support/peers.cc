#include "bench/support/peers.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/support/timing.h"
#include "nlohmann/json.hpp"

namespace weir {

nlohmann::json JsonOutputOf(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  char buffer[4096];
  while (const size_t got = fread(buffer, 1, sizeof(buffer), pipe)) {
    text.append(buffer, got);
  }
  pclose(pipe);
  return nlohmann::json::parse(text, nullptr, false);
}

double MeasureMemcpy(double seconds, size_t bytes) {
  const std::vector<char> from(bytes, 1);
  std::vector<char> to(bytes, 2);
  const auto sample = Measure(seconds, getpid(), bytes, [&] {
    std::memcpy(to.data(), from.data(), bytes);
    asm volatile("" : : "r"(to.data()) : "memory");
    return absl::OkStatus();
  });
  return 1e-3 * static_cast<double>(bytes) / sample->us;  // bytes/us to GB/s
}

double MeasureIperf3() {
  const absl::StatusOr<int> port = FreePort();
  if (!port.ok() || access("/usr/bin/iperf3", X_OK) != 0) {
    return 0;
  }
  const auto server =
      Child::Start({"/usr/bin/iperf3", "-s", "-1", "-p", absl::StrCat(*port)},
                   "/tmp/weir_iperf3.log");
  if (!server.ok()) {
    return 0;
  }
  // The server needs a moment before it listens, and says nothing when it does.
  for (int attempt = 0; attempt < 50; ++attempt) {
    usleep(20000);
    const nlohmann::json json = JsonOutputOf(absl::StrCat(
        "iperf3 -c 127.0.0.1 -p ", *port, " -t 2 -O 0.2 -J 2>/dev/null"));
    const auto path = "/end/sum_received/bits_per_second"_json_pointer;
    if (!json.is_discarded() && json.contains(path)) {
      return json[path].get<double>() / 8e9;
    }
  }
  return 0;
}

double MeasureSockets(double seconds, size_t bytes) {
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener, generic, length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, generic, &length) != 0) {
    close(listener);
    return 0;
  }
  std::thread sender([listener, bytes] {
    const int peer = accept(listener, nullptr, nullptr);
    const std::vector<char> from(bytes, 1);
    char request = 0;
    while (read(peer, &request, 1) == 1) {
      for (size_t at = 0; at < bytes;) {
        const ssize_t sent =
            send(peer, from.data() + at, std::min(bytes - at, size_t{1} << 20),
                 MSG_NOSIGNAL);
        if (sent <= 0) {
          break;
        }
        at += static_cast<size_t>(sent);
      }
    }
    close(peer);
  });
  const int peer = socket(AF_INET, SOCK_STREAM, 0);
  std::vector<char> to(bytes, 2);
  const bool connected = connect(peer, generic, length) == 0;
  const auto sample = Measure(seconds, getpid(), bytes, [&] {
    if (!connected || write(peer, "x", 1) != 1) {
      return absl::UnavailableError("sockets");
    }
    for (size_t at = 0; at < bytes;) {
      const ssize_t got = recv(peer, to.data() + at, bytes - at, 0);
      if (got <= 0) {
        return absl::UnavailableError("sockets");
      }
      at += static_cast<size_t>(got);
    }
    return absl::OkStatus();
  });
  close(peer);
  shutdown(listener, SHUT_RDWR);
  sender.join();
  close(listener);
  return sample.ok() ? 1e-3 * static_cast<double>(bytes) / sample->us : 0;
}

absl::StatusOr<TorchRpc> MeasureTorchRpc(const std::string& script,
                                         double seconds, size_t bytes,
                                         const std::string& transport) {
  const nlohmann::json json = JsonOutputOf(absl::StrCat(
      "/usr/bin/python3 '", script, "' --bytes ", bytes, " --seconds ", seconds,
      " --transport ", transport, " 2>/dev/null"));
  if (!json.is_object() || !json.contains("pull_seconds") ||
      !json.contains("push_seconds")) {
    return absl::UnavailableError(
        absl::StrCat(script,
                     " gives nothing; install Debian's python3-torch "
                     "and libopenblas0, and run it by hand to see why"));
  }
  const double gigabytes = 1e-9 * static_cast<double>(bytes);
  return TorchRpc{gigabytes / json["pull_seconds"].get<double>(),
                  gigabytes / json["push_seconds"].get<double>()};
}

}  // namespace weir
