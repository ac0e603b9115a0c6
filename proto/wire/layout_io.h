// Converts variables and layouts between the wire and common/job/layout.h.
//
// Place: client, chief, ps and tools all read a Declaration with it, so that
// they compute the same layout.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  an enum or a size that no layout can have; the
//                           message names the variable and the value.
#ifndef PROTO_WIRE_LAYOUT_IO_H_
#define PROTO_WIRE_LAYOUT_IO_H_

#include <vector>

#include "absl/status/statusor.h"
#include "common/job/layout.h"
#include "proto/ps.pb.h"

namespace weir {

Variable VariableToProto(const VariableSpec& variable);

// Checks enums only; Layout::Create checks the rest.
absl::StatusOr<VariableSpec> VariableFromProto(const Variable& variable);

// The layout of a declared job: a pure function of the declaration's
// variables, shard_count and block_elements.
absl::StatusOr<Layout> LayoutFromDeclaration(const Declaration& declaration);

}  // namespace weir

#endif  // PROTO_WIRE_LAYOUT_IO_H_
