#include "worker/compute/factory.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "worker/compute/cpu/cpu_backend.h"
#include "worker/compute/plugin.h"
#include "worker/compute/plugin_abi.h"
#include "worker/compute/shared_library.h"

namespace weir {
namespace {

constexpr char kPluginName[] = "libweir_cuda.so";

constexpr char kCpu[] = "cpu";
constexpr char kAuto[] = "auto";
constexpr char kAllDevices[] = "cuda:all";

// The devices that "cuda", "cuda:N" or "cuda:N,M" names. An empty list means
// that the name is none of these.
std::vector<int> CudaIndices(absl::string_view device) {
  if (device == "cuda") {
    return {0};
  }
  std::vector<int> indices;
  if (!absl::ConsumePrefix(&device, "cuda:")) {
    return indices;
  }
  for (const absl::string_view part : absl::StrSplit(device, ',')) {
    int index = 0;
    if (!absl::SimpleAtoi(part, &index) || index < 0) {
      return {};  // one bad part spoils the whole list
    }
    indices.push_back(index);
  }
  return indices;
}

// Returns the path of the plug-in, or an error that names the place where it
// should be.
absl::StatusOr<std::string> FindPlugin() {
  std::error_code error;
  const std::filesystem::path executable =
      std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("cannot read /proc/self/exe: ", error.message()));
  }
  const std::filesystem::path here = executable.parent_path();
  // An installed program has the plug-in beside it or in ../lib. The last three
  // folders are Bazel's, seen from worker/, from a folder below it, and from
  // bench/gpu/ or deploy/cli/.
  for (const std::filesystem::path& folder :
       {here, here / "../lib", here / "compute/cuda",
        here / "../worker/compute/cuda", here / "../../worker/compute/cuda"}) {
    const std::filesystem::path path = folder / kPluginName;
    if (std::filesystem::exists(path, error)) {
      return path.string();
    }
  }
  return absl::NotFoundError(
      absl::StrCat("there is no ", kPluginName, " beside ", executable.string(),
                   "; it is built where CUDA is installed"));
}

// Looks for the driver before the plug-in is opened. The plug-in loads CUDA's
// libraries: 0.7 s and 150 MB for nothing on a machine without a GPU
// (2026-11-22, CUDA 13.0).
absl::Status FindDriver() {
  // The handle is not closed: CUDA's runtime is about to open the same library.
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) {
    return absl::NotFoundError("there is no NVIDIA driver here (libcuda.so.1)");
  }
  return absl::OkStatus();
}

// Never closes a library that it could open: the code of its backends lies in
// it, and nobody knows here how long they live.
absl::StatusOr<const ComputePlugin*> OpenPlugin(const std::string& path) {
  absl::StatusOr<SharedLibrary> library = SharedLibrary::Open(path);
  if (!library.ok()) {
    return Annotate(library.status(), absl::StrCat("cannot open ", path));
  }
  const ComputePlugin* (*entry)() = nullptr;
  library->Find(kComputePluginSymbol, &entry);
  library->LeaveOpen();
  if (entry == nullptr) {
    return Invalid(path, " is no compute plug-in: it does not export ",
                   kComputePluginSymbol);
  }
  const ComputePlugin* const plugin = entry();
  // I1 of plugin.h: the rest of *plugin has the layout of our headers only if
  // its checksum is ours.
  if (plugin->abi != kComputePluginAbi) {
    return Invalid(path, " is of another version of Weir (ABI ",
                   absl::Hex(plugin->abi), ", this is ",
                   absl::Hex(kComputePluginAbi),
                   "); take both from the same build");
  }
  return plugin;
}

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> CreateCuda(
    const BackendOptions& options) {
  std::string path = options.plugin_path;
  // A plug-in that the caller names may be for any device, so only our own one
  // is refused where NVIDIA's driver is missing.
  if (path.empty()) {
    WEIR_ASSIGN_OR_RETURN(path, FindPlugin());
    WEIR_RETURN_IF_ERROR(FindDriver());
  }
  WEIR_ASSIGN_OR_RETURN(const ComputePlugin* const plugin, OpenPlugin(path));
  WEIR_ASSIGN_OR_RETURN(const int count, plugin->device_count());
  if (count == 0) {
    return absl::NotFoundError("the CUDA driver sees no device");
  }
  std::vector<int> indices = CudaIndices(options.device);
  // The count is known only now, so "cuda:all" and "auto" get their devices
  // here. A listed device that is not there is refused by create().
  if (options.device == kAllDevices) {
    indices.resize(count);
    std::iota(indices.begin(), indices.end(), 0);
  } else if (options.device == kAuto) {
    indices = {options.auto_index % count};
  }
  std::vector<std::unique_ptr<Backend>> backends;
  for (const int index : indices) {
    WEIR_ASSIGN_OR_RETURN(
        backends.emplace_back(),
        plugin->create({.device = index,
                        .precision = options.precision,
                        .deterministic = options.deterministic,
                        .cudnn_library = options.cudnn_library}));
  }
  return backends;
}

}  // namespace

absl::Status BackendOptions::Validate() const {
  if (threads < 1 || threads > kThreadsMax) {
    return Invalid("compute.threads is ", threads, "; it must be in 1..",
                   kThreadsMax);
  }
  if (device == kAuto || device == kCpu || device == kAllDevices) {
    return absl::OkStatus();
  }
  std::vector<int> indices = CudaIndices(device);
  if (indices.empty()) {
    return Invalid("device is '", device,
                   "'; it must be auto, cpu, cuda or cuda:N, or for several "
                   "GPUs a list such as cuda:0,1, or cuda:all");
  }
  // A GPU that is named twice would hold the model twice and gain nothing. The
  // order of this copy does not matter: CreateBackends reads the list again.
  std::sort(indices.begin(), indices.end());
  const auto twice = std::adjacent_find(indices.begin(), indices.end());
  if (twice != indices.end()) {
    return Invalid("device is '", device, "', which names cuda:", *twice,
                   " twice; name each GPU once");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> CreateBackends(
    const BackendOptions& options) {
  WEIR_RETURN_IF_ERROR(options.Validate());
  if (options.device != kCpu) {
    absl::StatusOr<std::vector<std::unique_ptr<Backend>>> cuda =
        CreateCuda(options);
    if (cuda.ok()) {
      for (const auto& backend : *cuda) {
        LOG_INFO("computing on {}", backend->name());
      }
      return cuda;
    }
    // Only "auto" may fall back. A job that names a GPU must not train on the
    // CPU, unnoticed.
    if (options.device != kAuto) {
      return cuda;
    }
    LOG_INFO("computing on the CPU: {}", std::string(cuda.status().message()));
  }
  std::vector<std::unique_ptr<Backend>> backends;
  WEIR_ASSIGN_OR_RETURN(backends.emplace_back(),
                        CpuBackend::Create(options.threads));
  return backends;
}

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(
    const BackendOptions& options) {
  WEIR_RETURN_IF_ERROR(options.Validate());
  // Cuts the list before a backend is made: each one that is made takes memory
  // on its device.
  BackendOptions one = options;
  if (options.device == kAllDevices) {
    one.device = "cuda:0";
  } else if (const std::vector<int> indices = CudaIndices(options.device);
             !indices.empty()) {
    one.device = absl::StrCat("cuda:", indices[0]);
  }
  WEIR_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Backend>> backends,
                        CreateBackends(one));
  return std::move(backends[0]);
}

}  // namespace weir
