// Lazy Adam: PyTorch's SparseAdam, in its order of operations.
#include <cmath>
#include <vector>

#include "common/base/status.h"
#include "server/ps/optimizer/hyper_parameters.h"
#include "server/ps/table/row_loop.h"
#include "server/ps/table/row_optimizer.h"

namespace weir {
namespace {

// m + (g - m)(1 - beta1) and not beta1 m + (1 - beta1) g as in the dense Adam:
// that is SparseAdam's order, and the bits differ.
struct AdamRowKernel {
  float one_minus_beta1, one_minus_beta2, epsilon;
  const float* minus_step;  // of row i at i * stride
  int64_t stride;           // 0: one for all rows

  WEIR_KERNEL void Row(int i, float* row, const UnalignedFloat* g,
                       int64_t dim) const {
    Columns(row, row + dim, row + 2 * dim, g, minus_step[i * stride], dim);
  }

  WEIR_KERNEL void Columns(float* __restrict w, float* __restrict m,
                           float* __restrict v,
                           const UnalignedFloat* __restrict g, float minus,
                           int64_t dim) const {
    for (int64_t i = 0; i < dim; ++i) {
      const float m_new = (g[i] - m[i]) * one_minus_beta1 + m[i];
      const float v_new = (g[i] * g[i] - v[i]) * one_minus_beta2 + v[i];
      m[i] = m_new;
      v[i] = v_new;
      w[i] = w[i] + minus * (m_new / (std::sqrt(v_new) + epsilon));
    }
  }
};

// Minus the rate with both bias corrections; in double, rounded once.
float MinusStep(const RowAdam& spec, double rate, uint64_t t) {
  const double step = static_cast<double>(t) + 1;
  const double correction1 = 1 - std::pow(spec.beta1, step);
  const double correction2 = 1 - std::pow(spec.beta2, step);
  return static_cast<float>(-(rate * std::sqrt(correction2) / correction1));
}

}  // namespace

absl::Status RowAdam::Check(const std::string& path) const {
  WEIR_RETURN_IF_ERROR(CheckUnitOpen(path, "beta1", beta1));
  WEIR_RETURN_IF_ERROR(CheckUnitOpen(path, "beta2", beta2));
  return CheckNonNegative(path, "epsilon", epsilon);
}

std::vector<RowState> RowAdam::State() const {
  return {{"m", 0.0f}, {"v", 0.0f}};
}

void RowAdam::Move(const RowStep& step, const RowBatch& batch) const {
  // The powers are computed once for a row, not for each of its columns.
  const float of_all = MinusStep(*this, step.learning_rate, step.step);
  const float* minus = &of_all;
  std::vector<float> of_row;
  if (per_row_step) {
    of_row.resize(static_cast<size_t>(batch.count));
    for (int i = 0; i < batch.count; ++i) {
      of_row[static_cast<size_t>(i)] =
          MinusStep(*this, step.learning_rate, batch.updates[i]);
    }
    minus = of_row.data();
  }
  ApplyRows(
      AdamRowKernel{static_cast<float>(1 - beta1),
                    static_cast<float>(1 - beta2), static_cast<float>(epsilon),
                    minus, per_row_step ? 1 : 0},
      batch);
}

}  // namespace weir
