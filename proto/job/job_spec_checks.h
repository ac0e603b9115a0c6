// Checks what a JobSpec may say, as far as the spec alone can tell.
//
// Place: LoadJobSpec calls it once the defaults are filled in
// (job_spec_defaults.h). What one field may hold is a rule of the field in
// job_spec.proto (field_rules.h); only what relates several fields is here.
//
// Others check what they own: the graph of the model (worker/model), and files
// (worker/data).
//
// Threads: safe.
// Errors: INVALID_ARGUMENT "field.path[2].field: value is not ...", for the
//   first mistake.
#ifndef PROTO_JOB_JOB_SPEC_CHECKS_H_
#define PROTO_JOB_JOB_SPEC_CHECKS_H_

#include "absl/status/status.h"
#include "proto/job_spec.pb.h"

namespace weir {

// Checks everything that can be known without data. A spec whose defaults are
// not resolved may pass as well.
absl::Status ValidateJobSpec(const JobSpec& spec);

// The part of ValidateJobSpec that the SDK shares. REQUIRES: defaults are
// resolved.
absl::Status ValidateCompression(const Compression& compression);

}  // namespace weir

#endif  // PROTO_JOB_JOB_SPEC_CHECKS_H_
