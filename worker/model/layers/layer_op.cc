#include "worker/model/layers/layer_op.h"

#include <numeric>

#include "common/base/status.h"

namespace weir {

int64_t TensorInfo::elements() const {
  int64_t product = 1;
  for (const int64_t d : dims) {
    product *= d;
  }
  return product;
}

std::string TensorInfo::ToString() const {
  std::string text = "[batch";
  for (const int64_t d : dims) {
    absl::StrAppend(&text, ", ", d);
  }
  return text + "]";
}

absl::Status CheckSize(const std::string& what,
                       const std::vector<int64_t>& dims) {
  // In double, since the product of dimensions from a job file may not fit
  // int64. It is exact up to 2^53, far above the bound.
  double product = 1.0;
  for (const int64_t d : dims) {
    if (d < 1) {
      return Invalid(what, " has a dimension of ", d, "; it must be >= 1");
    }
    product *= static_cast<double>(d);
  }
  if (product > static_cast<double>(Layout::kMaxFlatElements)) {
    return Invalid(what, " has ", product, " elements; at most ",
                   Layout::kMaxFlatElements, " are possible");
  }
  return absl::OkStatus();
}

absl::Status WrongInput(const TensorInfo& input, const std::string& takes) {
  return Invalid("input is ", input.ToString(), ", ", takes);
}

VariableSpec TrainedVariable(const std::string& name,
                             std::vector<int64_t> shape, InitSpec init) {
  VariableSpec variable;
  variable.name = name;
  variable.shape = std::move(shape);
  variable.init = init;
  return variable;
}

void JoinColumns(const LayerContext& c, int64_t rows,
                 const std::vector<int64_t>& widths, float* joined) {
  const int64_t stride =
      std::accumulate(widths.begin(), widths.end(), int64_t{0});
  for (size_t i = 0; i < widths.size(); ++i) {
    c.backend->Run(op::CopyColumns{rows, widths[i], c.inputs[i], widths[i],
                                   joined, stride});
    joined += widths[i];
  }
}

void SplitColumns(const LayerContext& c, int64_t rows,
                  const std::vector<int64_t>& widths, const float* joined) {
  const int64_t stride =
      std::accumulate(widths.begin(), widths.end(), int64_t{0});
  for (size_t i = 0; i < widths.size(); ++i) {
    if (c.input_gradients[i] != nullptr) {
      c.backend->Run(op::CopyColumns{rows, widths[i], joined, stride,
                                     c.input_gradients[i], widths[i]});
    }
    joined += widths[i];
  }
}

}  // namespace weir
