#include "worker/model/layers/vector_inputs.h"

#include <algorithm>

#include "common/base/status.h"

namespace weir {

absl::StatusOr<VectorInputs> VectorInputs::Create(
    const std::vector<TensorInfo>& inputs) {
  VectorInputs joined;
  joined.dim_ = inputs[0].dims.back();
  for (const TensorInfo& input : inputs) {
    if (input.dims.size() > 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("input is ", input.ToString(),
                       "; vectors are [batch, features, dim] or [batch, dim]"));
    }
    if (input.dims.back() != joined.dim_) {
      return absl::InvalidArgumentError(
          absl::StrCat("takes vectors of one dim, not ", inputs[0].ToString(),
                       " and ", input.ToString()));
    }
    joined.widths_.push_back(input.elements());
    joined.vectors_ += input.elements() / joined.dim_;
  }
  if (joined.vectors_ < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its input ", inputs[0].ToString(),
        " is one vector; it takes two or more, of one input or of several"));
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
  int64_t begin = 0;
  for (size_t i = 0; i < widths_.size() && !single(); ++i) {
    c.backend->CopyColumns(c.rows, widths_[i], c.inputs[i], widths_[i],
                           c.workspaces[0] + begin, width());
    begin += widths_[i];
  }
}

const float* VectorInputs::Values(const LayerContext& c) const {
  return single() ? c.inputs[0] : c.workspaces[0];
}

float* VectorInputs::Gradient(const LayerContext& c) const {
  return single() ? c.input_gradients[0] : c.workspaces[1];
}

void VectorInputs::Split(const LayerContext& c) const {
  int64_t begin = 0;
  for (size_t i = 0; i < widths_.size() && !single(); ++i) {
    if (c.input_gradients[i] != nullptr) {
      c.backend->CopyColumns(c.rows, widths_[i], c.workspaces[1] + begin,
                             width(), c.input_gradients[i], widths_[i]);
    }
    begin += widths_[i];
  }
}

}  // namespace weir
