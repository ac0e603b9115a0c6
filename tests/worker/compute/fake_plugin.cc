// Plug-ins for factory_test: of another ABI, with three devices, or none.
#include <string>

#include "worker/compute/cpu/cpu_backend.h"
#include "worker/compute/plugin.h"
#include "worker/compute/plugin_abi.h"

#ifndef NO_PLUGIN
namespace weir {
namespace {

class NamedCpu : public CpuBackend {
 public:
  explicit NamedCpu(int device)
      : CpuBackend(DnnlOps::Create(1).value()), device_(device) {}
  std::string name() const override {
    return "device " + std::to_string(device_);
  }

 private:
  const int device_;
};

constexpr ComputePlugin kPlugin = {
    .abi = kComputePluginAbi ^ OTHER_ABI,
    .description = "test",
    .device_count = []() -> absl::StatusOr<int> { return 3; },
    .create = [](const ComputePluginOptions& options)
        -> absl::StatusOr<std::unique_ptr<Backend>> {
      return std::make_unique<NamedCpu>(options.device);
    },
};

}  // namespace
}  // namespace weir

extern "C" const weir::ComputePlugin* weir_compute_plugin() {
  return &weir::kPlugin;
}
#endif
