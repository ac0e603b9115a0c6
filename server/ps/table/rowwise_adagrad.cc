// Row-wise Adagrad: one accumulator a row.
#include <cmath>

#include "server/ps/table/row_loop.h"
#include "server/ps/table/row_rules.h"

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

class RowwiseAdagradRows : public RowOptimizer {
 public:
  explicit RowwiseAdagradRows(const TableAdagrad& spec)
      : RowOptimizer("rowwise_adagrad",
                     {{"row_sum",
                       static_cast<float>(spec.initial_accumulator()), true}}),
        epsilon_(static_cast<float>(spec.epsilon())) {}

  void Apply(const RowStep& step, const RowBatch& batch) const override {
    ApplyRows(RowwiseKernel{static_cast<float>(-step.learning_rate), epsilon_},
              batch);
  }

 private:
  const float epsilon_;
};

}  // namespace

std::unique_ptr<RowOptimizer> MakeRowwiseAdagrad(const TableAdagrad& spec) {
  return std::make_unique<RowwiseAdagradRows>(spec);
}

}  // namespace weir
