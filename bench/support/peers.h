// What the transport is compared with, measured on the same machine.
#ifndef BENCH_SUPPORT_PEERS_H_
#define BENCH_SUPPORT_PEERS_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace weir {

// What a command prints, as JSON; discarded when it is none.
nlohmann::json JsonOutputOf(const std::string& command);

// All in GB/s; operations repeat for about `seconds`.

// One memcpy of `bytes`.
double MeasureMemcpy(double seconds, size_t bytes);

// iperf3 with its defaults, or 0 without it.
double MeasureIperf3();

// `bytes` over a bare TCP connection, from a buffer of that size straight into
// another: what the machine allows without any protocol. iperf3 sends one small
// buffer again and again, which stays in the cache.
double MeasureSockets(double seconds, size_t bytes);

struct TorchRpc {
  double pull = 0;
  double push = 0;
};

// PyTorch RPC doing the same, by the script `script` (torch_rpc.py);
// `transport` is its flag. UNAVAILABLE says what to install.
absl::StatusOr<TorchRpc> MeasureTorchRpc(const std::string& script,
                                         double seconds, size_t bytes,
                                         const std::string& transport);

}  // namespace weir

#endif  // BENCH_SUPPORT_PEERS_H_
