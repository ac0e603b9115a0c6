// Executes the rules that fields have in the .proto files
// (proto/field_rules.proto): fills defaults in and checks messages.
//
// Place: job files (job_spec_defaults.h, job_spec_checks.h), the source of a
// data set (worker/data/formats), tables that a program declares
// (client/cc/sdk), and what a ps is told by peers (server/ps/plan,
// server/ps/optimizer, server/ps/table). What relates several fields is checked
// there, after this.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT "field.path[2].field: value is not ...", for the
//   first mistake, in the order of the fields' numbers.
// Cost: a visit to every field of the message's types, by reflection.
#ifndef PROTO_JOB_FIELD_RULES_H_
#define PROTO_JOB_FIELD_RULES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/message.h"
#include "proto/field_rules.pb.h"

namespace weir {

// Sets every unset field that has a default, in `message` and all below it but
// what is `late`. Idempotent; what is set stays.
void FillDefaults(google::protobuf::Message* message);

// Checks every field of `message` and below it, and that every oneof has a
// member. `path` is where the message stands, "optimizer", or "". A message
// whose defaults are not filled in may pass as well.
absl::Status CheckFields(const google::protobuf::Message& message,
                         const std::string& path);

// The field of `type` with this name. INVALID_ARGUMENT for an unknown one says
// which it has and which is nearest; `path` is where `type` stands, or "".
absl::StatusOr<const google::protobuf::FieldDescriptor*> FindField(
    const google::protobuf::Descriptor& type, const std::string& name,
    const std::string& path);

// The range that a number of this field must be in, "in [1, 1024]" or ">= 0";
// empty if there are no bounds.
std::string RangeOf(const google::protobuf::FieldDescriptor& field);

// The members of a oneof, or the values of an enum, but for those that `rule`
// excepts: "sgd, adagrad, adam".
std::string ChoicesOf(const google::protobuf::OneofDescriptor& oneof,
                      const FieldRule& rule = {});
std::string ChoicesOf(const google::protobuf::EnumDescriptor& type,
                      const FieldRule& rule);

// The error "path: parts", which the checks of relations give as well.
template <typename... Parts>
absl::Status InvalidField(const std::string& path, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", parts...));
}

}  // namespace weir

#endif  // PROTO_JOB_FIELD_RULES_H_
