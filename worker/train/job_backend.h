// Makes the compute backends that a job asks for, on the devices that its
// operator chose.
//
// Place: the worker, the evaluator and the command line call it.
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

// Returns `options` with the threads, precision and determinism that the job
// asks for. REQUIRES: the job is resolved.
BackendOptions JobBackendOptions(const JobSpec& spec, BackendOptions options);

// Makes one backend for each device that `device` names.
absl::StatusOr<std::vector<std::unique_ptr<Backend>>> CreateJobBackends(
    const JobSpec& spec, const BackendOptions& device);

// Makes one for a program that computes on one device: the first of the list.
absl::StatusOr<std::unique_ptr<Backend>> CreateJobBackend(
    const JobSpec& spec, const BackendOptions& device);

}  // namespace weir

#endif  // WORKER_TRAIN_JOB_BACKEND_H_
