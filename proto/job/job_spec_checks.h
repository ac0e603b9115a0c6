// The rules of a JobSpec's data sources: see job_spec_defaults.h, which calls
// them.
#ifndef PROTO_JOB_JOB_SPEC_CHECKS_H_
#define PROTO_JOB_JOB_SPEC_CHECKS_H_

#include <string>

#include "absl/status/status.h"
#include "proto/job_spec.pb.h"

namespace weir {

// Writes every default that job_spec.proto names into `source`. Idempotent.
void ResolveSource(Source* source);

// Everything that can be known without the file; `path` is where `source`
// stands, "data.train".
// Errors: INVALID_ARGUMENT "data.train.csv.column[2].index: ...", the first.
absl::Status CheckSource(const std::string& path, const Source& source);

}  // namespace weir

#endif  // PROTO_JOB_JOB_SPEC_CHECKS_H_
