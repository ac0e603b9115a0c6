#include "worker/train/job_backend.h"

#include "common/base/logging.h"
#include "common/base/status.h"

namespace weir {
namespace {

// Not an error: the same job file must run on machines with a GPU and without.
void SayPrecision(const JobSpec& spec, const Backend& backend) {
  const auto precision = spec.compute().precision();
  if (backend.shares_host_memory() &&
      (precision == Compute::TF32 || precision == Compute::BF16)) {
    LOG_INFO("compute.precision is {}, but a CPU computes in FP32",
             Compute::Precision_Name(precision));
  }
}

}  // namespace

BackendOptions JobBackendOptions(const JobSpec& spec, BackendOptions options) {
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
  // Sync promises the same final bits however often a job is run, which sums in
  // any order would break.
  options.deterministic =
      spec.compute().deterministic() || spec.update().has_sync();
  return options;
}

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> CreateJobBackends(
    const JobSpec& spec, const BackendOptions& device) {
  WEIR_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Backend>> backends,
                        CreateBackends(JobBackendOptions(spec, device)));
  SayPrecision(spec, *backends[0]);
  return backends;
}

absl::StatusOr<std::unique_ptr<Backend>> CreateJobBackend(
    const JobSpec& spec, const BackendOptions& device) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                        CreateBackend(JobBackendOptions(spec, device)));
  SayPrecision(spec, *backend);
  return backend;
}

}  // namespace weir
