// Checks the numbers that a push brings: its weight, and what it says in place
// of its groups' schedules and optimizers.
//
// Place: the SDK asks before anything of a push leaves (client/cc/sdk), and a
// ps when it has come (server/ps). A number that a ps refuses costs the worker
// its push and its client, so the two must agree.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  names the number, its value and its range.
#ifndef PROTO_JOB_PUSH_CHECKS_H_
#define PROTO_JOB_PUSH_CHECKS_H_

#include "absl/status/status.h"
#include "google/protobuf/repeated_field.h"
#include "proto/ps.pb.h"

namespace weir {

// OK when a push may weigh `weight`.
absl::Status CheckWeight(double weight);

// OK when `hyper` is of one of `groups`, as the ps hold them, and that group's
// optimizer can take its numbers. Nobody reads the momentum of a frozen group.
absl::Status CheckHyper(const google::protobuf::RepeatedPtrField<Group>& groups,
                        const Hyper& hyper);

}  // namespace weir

#endif  // PROTO_JOB_PUSH_CHECKS_H_
