// Checks the data sources of a JobSpec, as far as the spec alone can tell.
//
// Place: job_spec_checks.h, for data.train and evaluation.source.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT "data.train.csv.column[2].index: ...", for the first
//   mistake.
#ifndef PROTO_JOB_SOURCE_CHECKS_H_
#define PROTO_JOB_SOURCE_CHECKS_H_

#include <string>

#include "absl/status/status.h"
#include "proto/job_spec.pb.h"

namespace weir {

// Checks everything that can be known without the file. `path` is where
// `source` stands in the spec, "data.train".
absl::Status CheckSource(const std::string& path, const Source& source);

}  // namespace weir

#endif  // PROTO_JOB_SOURCE_CHECKS_H_
