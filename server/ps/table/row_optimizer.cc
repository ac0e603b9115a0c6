#include "server/ps/table/row_optimizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir {

// I1 and I2 are kept by the kernels: sgd, adagrad and ftrl take those of the
// dense optimizers, and sums over a row are in double, column after column.

namespace {

int StateFloats(const RowState& state, int dim) {
  if (state.one_float) {
    return 1;
  }
  return dim;
}

}  // namespace

RowOptimizer::RowOptimizer(const RowOptimizerSpec& spec)
    : spec_(spec),
      state_(std::visit([](const auto& one) { return one.State(); }, spec)) {}

// I3: these floats, which a checkpoint writes as they are, the row's number of
// updates and t are the whole state, so the members keep nothing else.
int RowOptimizer::row_floats(int dim) const {
  int floats = dim;
  for (const RowState& state : state_) {
    floats += StateFloats(state, dim);
  }
  return floats;
}

void RowOptimizer::FillInitialState(int dim, float* row) const {
  float* at = row + dim;
  for (const RowState& state : state_) {
    at = std::fill_n(at, StateFloats(state, dim), state.initial);
  }
}

void RowOptimizer::Apply(const RowStep& step, const RowBatch& batch) const {
  std::visit([&](const auto& spec) { spec.Move(step, batch); }, spec_);
}

absl::StatusOr<std::unique_ptr<RowOptimizer>> CreateRowOptimizer(
    const RowOptimizerSpec& spec, const std::string& path) {
  WEIR_RETURN_IF_ERROR(std::visit(
      [&](const auto& one) {
        return one.Check(absl::StrCat(path, ".", one.kName));
      },
      spec));
  return std::make_unique<RowOptimizer>(spec);
}

}  // namespace weir
