// Plug-ins for factory_test: of another ABI, with three devices, or none. A
// backend's name tells what it was asked for.
#include <string>

#include "worker/compute/cpu/cpu_backend.h"
#include "worker/compute/plugin.h"
#include "worker/compute/plugin_abi.h"

#ifndef NO_PLUGIN
namespace weir {
namespace {

class NamedCpu : public CpuBackend {
 public:
  explicit NamedCpu(const ComputePluginOptions& options)
      : CpuBackend(DnnlOps::Create(1).value()), options_(options) {}
  std::string name() const override {
    return "device " + std::to_string(options_.device) +
           (options_.deterministic ? " deterministic" : "") +
           (options_.cudnn_library.empty() ? "" : " cuDNN ") +
           options_.cudnn_library;
  }

 private:
  const ComputePluginOptions options_;
};

constexpr ComputePlugin kPlugin = {
    .abi = kComputePluginAbi ^ OTHER_ABI,
    .description = "test",
    .device_count = []() -> absl::StatusOr<int> { return 3; },
    .create = [](const ComputePluginOptions& options)
        -> absl::StatusOr<std::unique_ptr<Backend>> {
      return std::make_unique<NamedCpu>(options);
    },
};

}  // namespace
}  // namespace weir

extern "C" const weir::ComputePlugin* weir_compute_plugin() {
  return &weir::kPlugin;
}
#endif
