// Measures what the transport is compared with, on the same machine.
#ifndef BENCH_SUPPORT_PEERS_H_
#define BENCH_SUPPORT_PEERS_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace weir {

// Runs a shell command and returns what it prints, as JSON. The value is
// "discarded" (nlohmann::json) when that is not JSON.
nlohmann::json JsonOutputOf(const std::string& command);

// These return GB/s and repeat the operation for about `seconds`.

// Measures one memcpy of `bytes`.
double MeasureMemcpy(double seconds, size_t bytes);

// Runs iperf3 with its defaults. Returns 0 where it is not installed.
double MeasureIperf3();

// Sends `bytes` over a bare TCP connection, from a buffer of that size straight
// into another: what the machine allows without any protocol. iperf3 is faster,
// since it sends one small buffer again and again, which stays in the cache.
double MeasureSockets(double seconds, size_t bytes);

struct TorchRpc {
  double pull = 0;
  double push = 0;
};

// Runs `script` (bench/transport/torch_rpc.py), which does the same by PyTorch
// RPC; `transport` is the script's flag.
// Errors: UNAVAILABLE says what to install.
absl::StatusOr<TorchRpc> MeasureTorchRpc(const std::string& script,
                                         double seconds, size_t bytes,
                                         const std::string& transport);

}  // namespace weir

#endif  // BENCH_SUPPORT_PEERS_H_
