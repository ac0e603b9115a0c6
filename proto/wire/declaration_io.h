// Makes of a resolved JobSpec what the shards are told of the job.
//
// Place: the chief declares with it. A worker fills in the groups of its
// variables with it before it computes its layout, so that both fingerprints
// agree.
//
// Terms
//   group 0      the job's own optimizer and schedule.
//   group i + 1  JobSpec.parameter_group(i), which replaces the optimizer, the
//                schedule, or both, each as a whole.
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

// All groups by number, with what they leave to the job filled in.
std::vector<Group> GroupsFromSpec(const JobSpec& spec);

// All tables, with what they leave to the job filled in.
std::vector<EmbeddingTable> TablesFromSpec(const JobSpec& spec);

// How a table's rows begin. INVALID_ARGUMENT when the initialiser needs a fan
// in or a fan out, which rows do not have.
absl::StatusOr<InitSpec> RowInitOf(const EmbeddingTable& table);

// Sets `group` of each variable to the first group whose `match` is found in
// its name, or else to 0.
absl::Status AssignGroups(const JobSpec& spec,
                          google::protobuf::RepeatedPtrField<Variable>* list);

// How many contributions the whole job has. `per_step` is how many make one
// step in sync, and 0 in the other modes. The last sync step may have fewer.
absl::StatusOr<uint64_t> ContributionCount(const Train& train,
                                           uint64_t sample_count,
                                           uint32_t per_step);

// How `theirs` first differs from `ours`, naming the variable; empty when the
// lists are equal. Groups must have been assigned in both.
std::string FirstVariableDifference(
    const google::protobuf::RepeatedPtrField<Variable>& ours,
    const google::protobuf::RepeatedPtrField<Variable>& theirs);

// Says in one line how the tensors, tables and optimizers that the ps hold
// (`declared`) first differ from those that a program brings (`ours`); empty
// when they do not. The optimizers' numbers may differ, since every push may
// bring its own.
std::string FirstTensorDifference(const Declaration& declared,
                                  const Declaration& ours);
// Compares the same, and also the shards, the workers, the consistency mode and
// the settings of the tables.
std::string FirstDeclarationDifference(const Declaration& declared,
                                       const Declaration& ours);

}  // namespace weir

#endif  // PROTO_WIRE_DECLARATION_IO_H_
