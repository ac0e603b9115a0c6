#include "server/ps/table/row_optimizer.h"

#include <algorithm>

#include "common/base/status.h"
#include "proto/job/field_rules.h"
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
    const TableOptimizer& spec, const std::string& path) {
  TableOptimizer filled = spec;
  FillDefaults(&filled);
  WEIR_RETURN_IF_ERROR(CheckFields(filled, path));
  switch (filled.kind_case()) {
    case TableOptimizer::kSgd:
      return MakeSgdRows();
    case TableOptimizer::kAdagrad:
      return MakeAdagradRows(filled.adagrad());
    case TableOptimizer::kRowwiseAdagrad:
      return MakeRowwiseAdagrad(filled.rowwise_adagrad());
    case TableOptimizer::kAdam:
      return MakeAdamRows(filled.adam());
    case TableOptimizer::kFtrl:
      // Without group lasso its kernel would only be slower.
      if (filled.ftrl().l21() == 0) {
        return MakeFtrlRows(filled.ftrl());
      }
      return MakeGroupFtrl(filled.ftrl());
    case TableOptimizer::KIND_NOT_SET:  // FillDefaults chose one
      break;
  }
  return absl::InternalError(path + ": no kind is set");
}

}  // namespace weir
