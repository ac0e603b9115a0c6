// Row-wise Adagrad: one accumulator a row.
#include <cmath>

#include "common/base/status.h"
#include "server/ps/optimizer/hyper_parameters.h"
#include "server/ps/table/row_loop.h"
#include "server/ps/table/row_optimizer.h"

namespace weir {
namespace {

struct RowwiseKernel {
  float minus_rate, epsilon;

  WEIR_KERNEL void Row(int, float* row, const UnalignedFloat* g,
                       int64_t dim) const {
    // In double and in the order of the columns: a sum has the same bits on
    // every SIMD level only when nothing about it may be reordered.
    double sum = 0;
    for (int64_t i = 0; i < dim; ++i) {
      sum += static_cast<double>(g[i]) * static_cast<double>(g[i]);
    }
    const float n =
        row[dim] + static_cast<float>(sum / static_cast<double>(dim));
    row[dim] = n;
    Move(row, g, minus_rate / (std::sqrt(n) + epsilon), dim);
  }

  static WEIR_KERNEL void Move(float* __restrict w,
                               const UnalignedFloat* __restrict g, float factor,
                               int64_t dim) {
    for (int64_t i = 0; i < dim; ++i) {
      w[i] = w[i] + factor * g[i];
    }
  }
};

}  // namespace

absl::Status RowwiseAdagrad::Check(const std::string& path) const {
  WEIR_RETURN_IF_ERROR(
      CheckNonNegative(path, "initial_accumulator", initial_accumulator));
  return CheckNonNegative(path, "epsilon", epsilon);
}

std::vector<RowState> RowwiseAdagrad::State() const {
  return {{"row_sum", static_cast<float>(initial_accumulator), true}};
}

void RowwiseAdagrad::Move(const RowStep& step, const RowBatch& batch) const {
  ApplyRows(RowwiseKernel{static_cast<float>(-step.learning_rate),
                          static_cast<float>(epsilon)},
            batch);
}

}  // namespace weir
