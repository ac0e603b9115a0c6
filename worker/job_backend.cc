#include "worker/job_backend.h"

#include <utility>

#include "common/logging.h"
#include "common/status.h"

namespace weir {

absl::StatusOr<std::unique_ptr<Backend>> CreateJobBackend(
    const JobSpec& spec, BackendOptions options) {
  options.threads = static_cast<int>(spec.compute().threads());
  switch (spec.compute().precision()) {
    case Compute::TF32:
      options.precision = Precision::kTf32;
      break;
    case Compute::BF16:
      options.precision = Precision::kBf16;
      break;
    default:
      options.precision = Precision::kFp32;
  }
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                        CreateBackend(options));
  if (backend->shares_host_memory() && options.precision != Precision::kFp32) {
    LOG_INFO("compute.precision is {}, but a CPU computes in FP32",
             Compute::Precision_Name(spec.compute().precision()));
  }
  return backend;
}

}  // namespace weir
