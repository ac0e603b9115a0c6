#include "proto/wire/layout_io.h"

#include <string>
#include <utility>

#include "common/base/status.h"

namespace weir {

// The casts between the two pairs of enums below rely on equal numbers.
static_assert(static_cast<int>(VariableKind::kTrained) == Variable::TRAINED &&
              static_cast<int>(VariableKind::kBuffer) == Variable::BUFFER);
static_assert(static_cast<int>(InitKind::kConstant) == Variable::CONSTANT &&
              static_cast<int>(InitKind::kNormal) == Variable::NORMAL &&
              static_cast<int>(InitKind::kUniform) == Variable::UNIFORM);

Variable VariableToProto(const VariableSpec& variable) {
  Variable proto;
  proto.set_name(variable.name);
  for (const int64_t dim : variable.shape) {
    proto.add_shape(dim);
  }
  proto.set_kind(static_cast<Variable::Kind>(variable.kind));
  proto.set_init(static_cast<Variable::Init>(variable.init.kind));
  proto.set_init_scale(variable.init.scale);
  proto.set_group(static_cast<uint32_t>(variable.group));
  proto.set_buffer_rate(variable.buffer_rate);
  // The default stays unset, so that a variable has one encoding only and two
  // lists of variables can be compared field by field.
  if (variable.export_dtype != "F32") {
    proto.set_export_dtype(variable.export_dtype);
  }
  for (const std::string& alias : variable.aliases) {
    proto.add_alias(alias);
  }
  return proto;
}

absl::StatusOr<VariableSpec> VariableFromProto(const Variable& variable) {
  // An open enum of proto3 may hold any number that a peer sends.
  if (!Variable::Kind_IsValid(variable.kind())) {
    return Invalid("variable '", variable.name(), "' has unknown kind ",
                   static_cast<int>(variable.kind()));
  }
  if (!Variable::Init_IsValid(variable.init())) {
    return Invalid("variable '", variable.name(), "' has unknown init ",
                   static_cast<int>(variable.init()));
  }
  if (variable.group() > 0xFFFF) {
    return Invalid("variable '", variable.name(), "' has group ",
                   variable.group(), "; at most 65535");
  }
  VariableSpec spec;
  spec.name = variable.name();
  spec.shape.assign(variable.shape().begin(), variable.shape().end());
  spec.kind = static_cast<VariableKind>(variable.kind());
  spec.init.kind = static_cast<InitKind>(variable.init());
  spec.init.scale = variable.init_scale();
  spec.group = static_cast<int>(variable.group());
  spec.buffer_rate = variable.buffer_rate();
  if (!variable.export_dtype().empty()) {
    spec.export_dtype = variable.export_dtype();
  }
  spec.aliases.assign(variable.alias().begin(), variable.alias().end());
  return spec;
}

absl::StatusOr<Layout> LayoutFromDeclaration(const Declaration& declaration) {
  if (declaration.variable_size() == 0 && declaration.table_size() == 0) {
    return absl::InvalidArgumentError(
        "the job declares neither a variable nor a table");
  }
  std::vector<VariableSpec> variables;
  variables.reserve(declaration.variable_size());
  for (const Variable& variable : declaration.variable()) {
    WEIR_ASSIGN_OR_RETURN(VariableSpec spec, VariableFromProto(variable));
    variables.push_back(std::move(spec));
  }
  // Layout::Create checks these ranges too, but it takes signed integers, and
  // the casts below would turn a huge number into a legal one.
  if (declaration.shard_count() > Layout::kMaxShards) {
    return Invalid("shard_count ", declaration.shard_count(), " is over ",
                   Layout::kMaxShards);
  }
  if (declaration.block_elements() > Layout::kMaxBlockElements) {
    return Invalid("block_elements ", declaration.block_elements(), " is over ",
                   Layout::kMaxBlockElements);
  }
  return Layout::Create(std::move(variables),
                        static_cast<int>(declaration.shard_count()),
                        static_cast<int64_t>(declaration.block_elements()));
}

}  // namespace weir
