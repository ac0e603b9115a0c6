// From a resolved JobSpec to what the shards are told of the job.
//
// Place: the chief declares with it; a worker fills the groups of its variable
// list with it before it computes its layout, so that both fingerprints agree.
//
// Terms
//   group 0      the job's own optimizer and schedule.
//   group i + 1  JobSpec.parameter_group(i), which replaces either, whole.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT names the parameter group or the field.
#ifndef PROTO_WIRE_DECLARATION_IO_H_
#define PROTO_WIRE_DECLARATION_IO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/layout.h"
#include "google/protobuf/repeated_field.h"
#include "proto/ps.pb.h"

namespace weir {

std::vector<Group> GroupsFromSpec(const JobSpec& spec);

// The job's tables with what they leave to the job filled in.
std::vector<EmbeddingTable> TablesFromSpec(const JobSpec& spec);

// How a table's rows begin. INVALID_ARGUMENT: an initialiser that needs a fan
// in.
absl::StatusOr<InitSpec> RowInitOf(const EmbeddingTable& table);

// Sets `group` of each variable: the first group whose `match` is found in the
// name, else 0.
absl::Status AssignGroups(const JobSpec& spec,
                          google::protobuf::RepeatedPtrField<Variable>* list);

// Contributions of the whole job; `per_step`: of a sync step, else 0. The last
// sync step may have fewer.
absl::StatusOr<uint64_t> ContributionCount(const Train& train,
                                           uint64_t sample_count,
                                           uint32_t per_step);

// How `theirs` first differs from `ours`, naming the variable; empty when the
// lists are equal. Groups must have been assigned in both.
std::string FirstVariableDifference(
    const google::protobuf::RepeatedPtrField<Variable>& ours,
    const google::protobuf::RepeatedPtrField<Variable>& theirs);

// One line: how the tensors, tables and optimizers of a job as its ps hold it,
// `declared`, first differ from those that a program brings; empty when they do
// not. Numbers of optimizers may differ: every push may bring its own.
std::string FirstTensorDifference(const Declaration& declared,
                                  const Declaration& ours);
// Likewise, and the shards, the workers, the mode and the settings of tables.
std::string FirstDeclarationDifference(const Declaration& declared,
                                       const Declaration& ours);

}  // namespace weir

#endif  // PROTO_WIRE_DECLARATION_IO_H_
