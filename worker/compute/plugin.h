// The interface between Weir's processes and a compute plug-in, a shared
// library that makes backends for one kind of device.
//
// Place: worker/compute/cuda/plugin.cc exports a ComputePlugin, and
// worker/compute/factory opens libraries that export one.
//
// Invariants
//   I1. Nobody reads anything but `abi` before he has compared it: both sides
//       call each other's C++ classes, so both must be compiled from the same
//       headers. kComputePluginAbi is a checksum of these headers.
// Threads: the functions are safe.
#ifndef WORKER_COMPUTE_PLUGIN_H_
#define WORKER_COMPUTE_PLUGIN_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/compute/backend.h"

namespace weir {

struct ComputePluginOptions {
  int device = 0;
  Precision precision = Precision::kFp32;
  bool deterministic = false;
  std::string cudnn_library;  // see BackendOptions
};

struct ComputePlugin {
  uint32_t abi = 0;
  // Tells people what the plug-in was built with.
  const char* description = "";
  // Errors: NOT_FOUND  there is no driver, or it does not answer.
  absl::StatusOr<int> (*device_count)() = nullptr;
  absl::StatusOr<std::unique_ptr<Backend>> (*create)(
      const ComputePluginOptions& options) = nullptr;
};

// A plug-in exports a function `const ComputePlugin* ()` under this name.
inline constexpr char kComputePluginSymbol[] = "weir_compute_plugin";

}  // namespace weir

#endif  // WORKER_COMPUTE_PLUGIN_H_
