// Lazy Adam: PyTorch's SparseAdam, in its order of operations.
#include <cmath>
#include <vector>

#include "server/ps/table/row_loop.h"
#include "server/ps/table/row_rules.h"

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

class AdamRows : public RowOptimizer {
 public:
  explicit AdamRows(const TableAdam& spec)
      : RowOptimizer("adam", {{"m", 0.0f}, {"v", 0.0f}}), spec_(spec) {}

  void Apply(const RowStep& step, const RowBatch& batch) const override {
    // The powers are computed once for a row, not for each of its columns.
    if (spec_.per_row_step()) {
      std::vector<float> minus(static_cast<size_t>(batch.count));
      for (int i = 0; i < batch.count; ++i) {
        minus[static_cast<size_t>(i)] =
            MinusStep(step.learning_rate, batch.updates[i]);
      }
      Run(minus.data(), 1, batch);
    } else {
      const float minus = MinusStep(step.learning_rate, step.step);
      Run(&minus, 0, batch);
    }
  }

 private:
  // Minus the rate with both bias corrections; in double, rounded once.
  float MinusStep(double rate, uint64_t t) const {
    const double step = static_cast<double>(t) + 1;
    const double correction1 = 1 - std::pow(spec_.beta1(), step);
    const double correction2 = 1 - std::pow(spec_.beta2(), step);
    return static_cast<float>(-(rate * std::sqrt(correction2) / correction1));
  }

  void Run(const float* minus, int64_t stride, const RowBatch& batch) const {
    ApplyRows(AdamRowKernel{static_cast<float>(1 - spec_.beta1()),
                            static_cast<float>(1 - spec_.beta2()),
                            static_cast<float>(spec_.epsilon()), minus, stride},
              batch);
  }

  const TableAdam spec_;
};

}  // namespace

std::unique_ptr<RowOptimizer> MakeAdamRows(const TableAdam& spec) {
  return std::make_unique<AdamRows>(spec);
}

}  // namespace weir
