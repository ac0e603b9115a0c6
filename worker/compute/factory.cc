#include "worker/compute/factory.h"

#include "common/status.h"
#include "worker/compute/cpu/cpu_backend.h"

namespace weir {

absl::Status BackendOptions::Validate() const {
  if (threads < 1 || threads > kThreadsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "compute.threads is ", threads, "; it must be in 1..", kThreadsMax));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(
    const BackendOptions& options) {
  WEIR_RETURN_IF_ERROR(options.Validate());
  if (options.name == "cpu") {
    return CpuBackend::Create(options.threads);
  }
  return absl::NotFoundError(absl::StrCat("no compute backend '", options.name,
                                          "' in this build; there is: cpu"));
}

}  // namespace weir
