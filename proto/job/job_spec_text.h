// JobSpecs as text: read, overridden from the command line, printed, compared.
//
// Place: every main loads its job here; the chief compares the workers' specs
// with FirstDifference. Defaults and checks are in job_spec_defaults.h.
//
// Forms: protobuf text format, or protobuf's JSON when the file's name ends in
// .json or its first character is '{'.
//
// Errors: INVALID_ARGUMENT "file:line:column: what" for text that does not
//   parse, "file: field.path: what" for the rest, and for a file that cannot be
//   read.
#ifndef PROTO_JOB_JOB_SPEC_TEXT_H_
#define PROTO_JOB_JOB_SPEC_TEXT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/files.h"
#include "proto/job_spec.pb.h"

namespace weir {

// Reads `path`, applies each "path=value", resolves defaults and validates: the
// spec that every task works from.
absl::StatusOr<JobSpec> LoadJobSpec(const std::string& path,
                                    const std::vector<std::string>& sets,
                                    Files* files = Files::Real());

// Parses only; `name` is for messages and the suffix.
absl::StatusOr<JobSpec> ParseJobSpec(const std::string& text,
                                     const std::string& name);

// Applies one "path=value". A path is dotted, with [i] for entries of a list;
// [size] adds one. Naming a member of a choice chooses it. A value is written
// as in text format; a string needs no quotes; a message is {...}; a whole list
// is [a, b].
//   model.layer[2].dense.units=64   optimizer.adam.beta1=0.8
//   update.async={}                 evaluation.source.idx.images=t10k.gz
// Unchanged on failure.
absl::Status ApplyJobSpecOverride(const std::string& assignment, JobSpec* spec);

// One text for one spec, whatever it was read from; ParseJobSpec reads it.
std::string CanonicalJobSpecText(const JobSpec& spec);

// SHA-256 of the canonical text, 64 hexadecimal digits.
std::string JobSpecHash(const JobSpec& spec);

// The first field, in the order of the .proto, that differs, with both values:
// "train.batch_size: 64 against 128"; empty when there is none.
std::string FirstDifference(const google::protobuf::Message& a,
                            const google::protobuf::Message& b);

}  // namespace weir

#endif  // PROTO_JOB_JOB_SPEC_TEXT_H_
