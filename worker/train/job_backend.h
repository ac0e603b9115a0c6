// The compute backends that a job asks for, on the devices that its operator
// chose.
//
// Place: workers, the evaluator and the command line make theirs here.
// Threads: safe.
// Errors: those of CreateBackend in worker/compute/factory.h.
#ifndef WORKER_TRAIN_JOB_BACKEND_H_
#define WORKER_TRAIN_JOB_BACKEND_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/compute/backend.h"
#include "worker/compute/factory.h"

namespace weir {

// `options` with what the job says: threads, precision, determinism. The job is
// resolved.
BackendOptions JobBackendOptions(const JobSpec& spec, BackendOptions options);

// `device` says which devices; the job says the rest.
absl::StatusOr<std::vector<std::unique_ptr<Backend>>> CreateJobBackends(
    const JobSpec& spec, const BackendOptions& device);

// For what computes on one device: the first of the list.
absl::StatusOr<std::unique_ptr<Backend>> CreateJobBackend(
    const JobSpec& spec, const BackendOptions& device);

}  // namespace weir

#endif  // WORKER_TRAIN_JOB_BACKEND_H_
