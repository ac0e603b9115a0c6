#include "server/ps/table/row_optimizer.h"

#include <algorithm>

#include "server/ps/table/row_rules.h"

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

absl::StatusOr<std::unique_ptr<RowOptimizer>> CreateRowOptimizer(
    const RowOptimizerSpec& spec, const std::string& path) {
  struct Create {
    const std::string& path;
    RowOptimizerOr operator()(const RowSgd& s) const {
      return CreateRowSgd(s, path + ".sgd");
    }
    RowOptimizerOr operator()(const RowAdagrad& s) const {
      return CreateRowAdagrad(s, path + ".adagrad");
    }
    RowOptimizerOr operator()(const RowwiseAdagrad& s) const {
      return CreateRowwiseAdagrad(s, path + ".rowwise_adagrad");
    }
    RowOptimizerOr operator()(const RowAdam& s) const {
      return CreateRowAdam(s, path + ".adam");
    }
    RowOptimizerOr operator()(const RowFtrl& s) const {
      return CreateRowFtrl(s, path + ".ftrl");
    }
    RowOptimizerOr operator()(const RowGroupFtrl& s) const {
      return CreateRowGroupFtrl(s, path + ".group_ftrl");
    }
  };
  return std::visit(Create{path}, spec);
}

}  // namespace weir
