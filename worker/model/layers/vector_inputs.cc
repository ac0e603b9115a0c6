#include "worker/model/layers/vector_inputs.h"

#include "common/base/status.h"

namespace weir {

absl::StatusOr<VectorInputs> VectorInputs::Create(
    const std::vector<TensorInfo>& inputs) {
  VectorInputs joined;
  // The first input sets the dim; a dense input [batch, dim] is one vector.
  joined.dim_ = inputs[0].dims.back();
  for (const TensorInfo& input : inputs) {
    if (input.dims.size() > 2) {
      return Invalid("input is ", input.ToString(),
                     "; vectors are [batch, features, dim] or [batch, dim]");
    }
    if (input.dims.back() != joined.dim_) {
      return Invalid("takes vectors of one dim, not ", inputs[0].ToString(),
                     " and ", input.ToString());
    }
    joined.widths_.push_back(input.elements());
    joined.vectors_ += input.elements() / joined.dim_;
  }
  // One vector makes no pair, so the layer's output would be empty or zero.
  if (joined.vectors_ < 2) {
    return Invalid(
        "its input ", inputs[0].ToString(),
        " is one vector; it takes two or more, of one input or of several");
  }
  return joined;
}

std::vector<WorkspaceSpec> VectorInputs::workspaces() const {
  if (single()) {
    return {};
  }
  return {{.per_row = width()}, {.per_row = width()}};  // values, gradient
}

void VectorInputs::Join(const LayerContext& c) const {
  if (!single()) {
    JoinColumns(c, c.rows, widths_, c.workspaces[0]);
  }
}

const float* VectorInputs::Values(const LayerContext& c) const {
  if (single()) {
    return c.inputs[0];
  }
  return c.workspaces[0];
}

float* VectorInputs::Gradient(const LayerContext& c) const {
  if (single()) {
    return c.input_gradients[0];
  }
  return c.workspaces[1];
}

void VectorInputs::Split(const LayerContext& c) const {
  if (!single()) {
    SplitColumns(c, c.rows, widths_, c.workspaces[1]);
  }
}

}  // namespace weir
