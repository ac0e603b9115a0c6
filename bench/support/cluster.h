// What benchmarks of several processes share: ps processes, the declaration of
// a job on them, and files by which processes on one machine meet.
//
// Threads: compatible.
#ifndef BENCH_SUPPORT_CLUSTER_H_
#define BENCH_SUPPORT_CLUSTER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/support/timing.h"
#include "client/cc/transport/shm_transport.h"
#include "client/cc/transport/transport.h"
#include "proto/ps.pb.h"

namespace weir {

// Returns the folder of the built binaries, which `weir bench` names in the
// environment.
std::string BinDir();
// Returns this process's own binary, to be started again as a worker.
std::string OwnBinary();

// Turns a command line into the one that runs it where process `index` belongs.
using Placement =
    std::function<std::vector<std::string>(int, std::vector<std::string>)>;

// How this process, which holds `slot`, speaks to them. It proves who it is as
// the environment says (WEIR_SECRET and so on), which the ps have too; see
// bench_main.h.
absl::StatusOr<std::unique_ptr<Transport>> BenchTransport(
    TransportChoice choice, int slot = 0);

// Starts one weir_ps for each address, each in its place.
absl::StatusOr<std::vector<std::unique_ptr<Child>>> StartPs(
    const std::vector<std::string>& addresses, const Placement& place,
    const std::string& log_path);

// If `first`, declares `declaration` on every address. Otherwise waits until
// another process has done so and has taken its slot. Takes `slot` and returns
// its sender. Errors: UNAVAILABLE after 30 seconds.
absl::StatusOr<Sender> JoinJob(Transport* transport,
                               const std::vector<std::string>& addresses,
                               const Declaration& declaration, int slot,
                               bool first);

// Writes a file whole or not at all.
absl::Status Say(const std::string& path, const std::string& text);
// Waits for such a file and reads it. Errors: DEADLINE_EXCEEDED names it.
absl::StatusOr<std::string> Hear(const std::string& path, double timeout_s);

// An empty directory for one run. The destructor removes it with what is in it.
class RunDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<RunDirectory>> Create();
  ~RunDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace weir

#endif  // BENCH_SUPPORT_CLUSTER_H_
