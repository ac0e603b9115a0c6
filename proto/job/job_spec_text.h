// Reads a JobSpec from text, overrides its fields from the command line, prints
// it and compares it.
//
// Place: every main loads its job with it. The chief compares the workers'
// specs with FirstDifference. Defaults are in job_spec_defaults.h, checks in
// job_spec_checks.h.
//
// Forms: protobuf text format, or protobuf's JSON when the file's name ends in
// .json or its first character is '{'.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  for text that does not parse "file:line:column:
//                           what", for a field that is wrong "file: field.path:
//                           what"; also for a file that cannot be read.
#ifndef PROTO_JOB_JOB_SPEC_TEXT_H_
#define PROTO_JOB_JOB_SPEC_TEXT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"

namespace weir {

// Reads `path`, applies each "path=value", resolves defaults and validates: the
// spec that every task works from.
absl::StatusOr<JobSpec> LoadJobSpec(const std::string& path,
                                    const std::vector<std::string>& sets);

// Parses the text and checks nothing else. `name` is the file's: its suffix may
// choose the form, and messages begin with it.
absl::StatusOr<JobSpec> ParseJobSpec(const std::string& text,
                                     const std::string& name);

// Applies one "path=value". The names of a path are separated by dots; [i] is
// an entry of a list, and [size] adds one. To name a member of a choice chooses
// it. A value is written as in text format, but a string needs no quotes; a
// message is {...}; a whole list is [a, b].
//   model.layer[2].dense.units=64   optimizer.adam.beta1=0.8
//   update.async={}                 evaluation.source.idx.images=t10k.gz
// `spec` is unchanged on failure.
absl::Status ApplyJobSpecOverride(const std::string& assignment, JobSpec* spec);

// The text of a spec: the same one for equal specs, whatever they were read
// from. ParseJobSpec reads it.
std::string CanonicalJobSpecText(const JobSpec& spec);

// "sync", "async", "async_lock_free" or "bounded_staleness", as summary.json
// and JobReport.mode name it.
std::string UpdateModeName(const Update& update);

// SHA-256 of the canonical text, 64 hexadecimal digits.
std::string JobSpecHash(const JobSpec& spec);

// The first field that differs, in the order of the .proto, with both values:
// "train.batch_size: 64 against 128". Empty if the messages are equal.
// REQUIRES: `a` and `b` are of one type.
std::string FirstDifference(const google::protobuf::Message& a,
                            const google::protobuf::Message& b);

}  // namespace weir

#endif  // PROTO_JOB_JOB_SPEC_TEXT_H_
