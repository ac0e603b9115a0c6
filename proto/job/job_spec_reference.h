// Says what a field of a job file means: its comment in job_spec.proto, its
// type, and its rule (field_rules.h).
//
// Place: `weir config explain`, and docs/job_spec.md, which it prints.
//
// A compiled .proto has no comments. The build keeps them in a descriptor set
// that is a part of the program (proto/BUILD, job_spec_descriptors).
//
// Threads: safe.
#ifndef PROTO_JOB_JOB_SPEC_REFERENCE_H_
#define PROTO_JOB_JOB_SPEC_REFERENCE_H_

#include <string>

#include "absl/status/statusor.h"

namespace weir {

// Explains one field, "train.batch_size" or "model.layer[0].dense.units" (an
// index changes nothing), and lists the fields of a message. "" is the whole
// job. INVALID_ARGUMENT for an unknown name; the message has the nearest one.
absl::StatusOr<std::string> ExplainField(const std::string& path);

// All messages and enums of the job file as a page of Markdown.
std::string JobSpecPage();

}  // namespace weir

#endif  // PROTO_JOB_JOB_SPEC_REFERENCE_H_
