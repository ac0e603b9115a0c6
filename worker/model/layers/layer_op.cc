#include "worker/model/layers/layer_op.h"

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
      return absl::InvalidArgumentError(
          absl::StrCat(what, " has a dimension of ", d, "; it must be >= 1"));
    }
    product *= static_cast<double>(d);
  }
  if (product > static_cast<double>(Layout::kMaxFlatElements)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", product, " elements; at most ",
                     Layout::kMaxFlatElements, " are possible"));
  }
  return absl::OkStatus();
}

VariableSpec TrainedVariable(const std::string& name,
                             std::vector<int64_t> shape, InitSpec init) {
  VariableSpec variable;
  variable.name = name;
  variable.shape = std::move(shape);
  variable.init = init;
  return variable;
}

}  // namespace weir
