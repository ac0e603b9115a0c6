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
#include "client/cc/transport/transport.h"
#include "proto/ps.pb.h"

namespace weir {

// Environment of `weir bench`: where binaries are built.
std::string BinDir();
// This process's own binary, to be started again as a worker.
std::string OwnBinary();

// argv -> the command that runs it where process `index` belongs.
using Placement =
    std::function<std::vector<std::string>(int, std::vector<std::string>)>;

// One weir_ps per address, each in its place.
absl::StatusOr<std::vector<std::unique_ptr<Child>>> StartPs(
    const std::vector<std::string>& addresses, const Placement& place,
    const std::string& log_path);

// Declares `declaration` on every address and lets all its slots push, all with
// generation 1, when `first`; else waits until that was done. Returns slot
// `slot`'s sender.
absl::StatusOr<Sender> JoinJob(Transport* transport,
                               const std::vector<std::string>& addresses,
                               const Declaration& declaration, int slot,
                               bool first);

// Writes a file whole or not at all.
absl::Status Say(const std::string& path, const std::string& text);
// Waits for such a file and reads it.
absl::StatusOr<std::string> Hear(const std::string& path, double timeout_s);

// An empty directory for one run; removed with the object.
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
