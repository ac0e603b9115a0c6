// Hosts of their own on one machine, for measurements over a network.
//
// Each host is a network namespace with one interface, joined to the others by
// a bridge in one more namespace. The link of a host is shaped in both
// directions, each on its own (full duplex), by a token bucket, so that the
// network is the limit and not the processors that all hosts share. The
// machine's own network is not touched.
//
// Place: benchmarks; needs root, Debian's iproute2, and iperf3 for Goodput.
//
// Invariants
//   I1. The hosts' names carry this process's id, so that two runs at a time do
//       not take each other's.
//   I2. Whatever ends this process, kill -9 included, the hosts are removed: a
//       helper that the terminal's signals do not reach waits for our end of a
//       pipe to close, kills what still runs in the hosts and removes them.
//
// Threads: compatible.
// Errors: PERMISSION_DENIED  not root, or namespaces are not allowed.
//         UNAVAILABLE        a tool fails; the message has its words.
#ifndef BENCH_SUPPORT_TEST_HOSTS_H_
#define BENCH_SUPPORT_TEST_HOSTS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

class TestHosts {
 public:
  static constexpr int kHostsMax = 200;

  // `count` hosts, every link with `bits_per_s` each way, Ethernet headers
  // included.
  static absl::StatusOr<std::unique_ptr<TestHosts>> Create(int count,
                                                           double bits_per_s);
  // Removes them and waits for that.
  ~TestHosts();

  int size() const { return static_cast<int>(names_.size()); }
  // Its IPv4 address, which only the hosts reach.
  std::string address(int host) const;

  // Returns a command that runs `argv` inside `host`. The process that is
  // started becomes `argv`'s program, so its id and its signals are that
  // program's.
  std::vector<std::string> Command(int host,
                                   std::vector<std::string> argv) const;

  absl::Status SetRate(double bits_per_s);

  // Returns the bytes of payload that iperf3 gets through from one host to
  // another in a second.
  absl::StatusOr<double> Goodput(int from, int to, double seconds) const;

 private:
  TestHosts() = default;
  absl::Status StartRemover();

  std::string switch_;
  std::vector<std::string> names_;
  pid_t remover_ = 0;
  int remover_pipe_ = -1;
};

// Reads "1gbit", "200mbit", "500kbit" or plain bits a second.
// Errors: INVALID_ARGUMENT for another text, or beyond 100kbit to 1000gbit.
absl::StatusOr<double> ParseRate(const std::string& text);

}  // namespace weir

#endif  // BENCH_SUPPORT_TEST_HOSTS_H_
