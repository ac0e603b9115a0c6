#include "worker/compute/factory.h"

#include <dlfcn.h>

#include <array>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/logging.h"
#include "common/status.h"
#include "worker/compute/cpu/cpu_backend.h"
#include "worker/compute/plugin.h"
#include "worker/compute/plugin_abi.h"

namespace weir {
namespace {

constexpr char kPluginName[] = "libweir_cuda.so";

// The N of "cuda:N"; 0 of "cuda"; nothing for what is neither.
std::optional<int> CudaIndex(absl::string_view device) {
  if (device == "cuda") {
    return 0;
  }
  int index = 0;
  if (absl::ConsumePrefix(&device, "cuda:") &&
      absl::SimpleAtoi(device, &index) && index >= 0) {
    return index;
  }
  return std::nullopt;
}

// Where the plug-in is, or an error that says where it was looked for.
absl::StatusOr<std::string> FindPlugin() {
  std::error_code error;
  const std::filesystem::path executable =
      std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("cannot read /proc/self/exe: ", error.message()));
  }
  const std::filesystem::path here = executable.parent_path();
  // The last two: the build's folder, from worker/ and from deploy/cli/.
  for (const std::filesystem::path& folder :
       {here, here / "../lib", here / "compute/cuda",
        here / "../../worker/compute/cuda"}) {
    const std::filesystem::path path = folder / kPluginName;
    if (std::filesystem::exists(path, error)) {
      return path.string();
    }
  }
  return absl::NotFoundError(
      absl::StrCat("there is no ", kPluginName, " beside ", executable.string(),
                   "; it is built where CUDA is installed"));
}

// Looked for before the plug-in is opened, which loads CUDA's libraries: 0.7 s
// and 150 MB for nothing on a machine without a GPU (2026-11-22, CUDA 13.0).
absl::Status FindDriver() {
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) {
    return absl::NotFoundError("there is no NVIDIA driver here (libcuda.so.1)");
  }
  return absl::OkStatus();
}

// Opened libraries stay: their backends' code must.
absl::StatusOr<const ComputePlugin*> OpenPlugin(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("cannot open ", path, ": ",
                                            dlerror()));  // NOLINT
  }
  using Entry = const ComputePlugin* (*)();
  const auto entry =
      reinterpret_cast<Entry>(dlsym(library, kComputePluginSymbol));
  if (entry == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is no compute plug-in: it does not export ",
                     kComputePluginSymbol));
  }
  const ComputePlugin* const plugin = entry();
  if (plugin->abi != kComputePluginAbi) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is of another version of Weir (ABI ", absl::Hex(plugin->abi),
        ", this is ", absl::Hex(kComputePluginAbi),
        "); take both from the same build"));
  }
  return plugin;
}

// `index`: of the device; nothing: auto_index, wrapped.
absl::StatusOr<std::unique_ptr<Backend>> CreateCuda(
    const BackendOptions& options, std::optional<int> index) {
  std::string path = options.plugin_path;
  if (path.empty()) {
    WEIR_ASSIGN_OR_RETURN(path, FindPlugin());
    WEIR_RETURN_IF_ERROR(FindDriver());
  }
  WEIR_ASSIGN_OR_RETURN(const ComputePlugin* const plugin, OpenPlugin(path));
  WEIR_ASSIGN_OR_RETURN(const int count, plugin->device_count());
  if (count == 0) {
    return absl::NotFoundError("the CUDA driver sees no device");
  }
  return plugin->create({.device = index.value_or(options.auto_index % count),
                         .precision = options.precision});
}

}  // namespace

absl::Status BackendOptions::Validate() const {
  if (threads < 1 || threads > kThreadsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "compute.threads is ", threads, "; it must be in 1..", kThreadsMax));
  }
  if (device != "auto" && device != "cpu" && !CudaIndex(device).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "device is '", device, "'; it must be auto, cpu, cuda or cuda:N"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(
    const BackendOptions& options) {
  WEIR_RETURN_IF_ERROR(options.Validate());
  if (options.device == "cpu") {
    return CpuBackend::Create(options.threads);
  }
  const std::optional<int> index = CudaIndex(options.device);
  absl::StatusOr<std::unique_ptr<Backend>> cuda = CreateCuda(options, index);
  if (cuda.ok()) {
    LOG_INFO("computing on {}", (*cuda)->name());
    return cuda;
  }
  if (index.has_value()) {
    return cuda;
  }
  LOG_INFO("computing on the CPU: {}", std::string(cuda.status().message()));
  return CpuBackend::Create(options.threads);
}

}  // namespace weir
