// Runs clients that push a flat model as fast as they can, one process each.
//
// Place: scale_bench and clients_bench start their own binary again with
// --client; main hands such a process to RunLoadClient.
//
// Protocol, by files in the run's directory (cluster.h): a client writes
// `ready-<slot>` after its first steps, waits for `go`, which holds the begin
// and the end of the measurement on the steady clock, and writes
// `result-<slot>`: when each of its steps ended.
//
// Threads: compatible.
#ifndef BENCH_SUPPORT_LOAD_H_
#define BENCH_SUPPORT_LOAD_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/support/cluster.h"
#include "bench/support/timing.h"
#include "client/cc/parameters/shard_exchange.h"

namespace weir {

struct LoadOptions {
  std::vector<std::string> addresses;  // of the ps
  int clients = 1;
  int64_t bytes = 0;               // of the model
  std::string transport = "grpc";  // or shm
  bool pull = true;                // each step also brings the values
  // What a client may send without a receipt; the default is that of workers.
  int64_t in_flight_bytes = ShardExchange::kInFlightBytesMax;
  std::string log_path;
};

struct ClientResult {
  std::vector<double> step_s;  // of the steps that ended in the measurement
  double steps_per_s = 0;
};

// Returns what a client did within [begin, begin + seconds), in seconds of the
// steady clock. `ends` are the times at which its steps ended, ascending; the
// last one is not before the end of the measurement. The step that is under way
// then counts by the part of it that lies within.
ClientResult ResultOf(const std::vector<double>& ends, double begin,
                      double seconds);

// The processes of one measurement, started and ready to go.
class Load {
 public:
  // `place` puts client `index` where it belongs.
  static absl::StatusOr<std::unique_ptr<Load>> Start(const LoadOptions& options,
                                                     const Placement& place);

  // Lets them run for `seconds`, and calls `tick` about ten times a second.
  absl::StatusOr<std::vector<ClientResult>> Run(
      double seconds, const std::function<void()>& tick);

  double cpu_seconds() const;  // of all clients, so far

 private:
  std::unique_ptr<RunDirectory> directory_;
  std::vector<std::unique_ptr<Child>> clients_;
};

// The flags by which Load starts its processes; they are hidden from --help.
// `*client` stays as it is in another process.
void AddLoadClientFlags(CLI::App* app, LoadOptions* options, int* client,
                        std::string* directory);

// The process of client `slot`; returns when it is through.
absl::Status RunLoadClient(const LoadOptions& options, int slot,
                           const std::string& directory);

}  // namespace weir

#endif  // BENCH_SUPPORT_LOAD_H_
