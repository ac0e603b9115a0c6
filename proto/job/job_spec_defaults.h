// What a JobSpec means where it is silent, and what it may not say.
//
// Place: LoadJobSpec applies both, so every task of a job works from one
// resolved spec, and later code never repeats a default.
//
// Not here, because others own it: the optimizers' defaults and ranges
// (server/ps/optimizer), the graph of the model (worker/model), files
// (worker/data), and update.sync.contributions = 0, which the chief replaces by
// the number of workers.
#ifndef PROTO_JOB_JOB_SPEC_DEFAULTS_H_
#define PROTO_JOB_JOB_SPEC_DEFAULTS_H_

#include "absl/status/status.h"
#include "proto/job_spec.pb.h"

namespace weir {

// Writes every default that job_spec.proto names into `spec`. Idempotent; what
// is set stays.
void ResolveDefaults(JobSpec* spec);

// Everything that can be known without data: required fields, ranges, choices
// that are not made, regular expressions, numbers that are not finite.
// Errors: INVALID_ARGUMENT "field.path[2].field: value is not ...", the first.
absl::Status ValidateJobSpec(const JobSpec& spec);

// That part of it which the SDK shares. REQUIRES: defaults are resolved.
absl::Status ValidateCompression(const Compression& compression);

}  // namespace weir

#endif  // PROTO_JOB_JOB_SPEC_DEFAULTS_H_
