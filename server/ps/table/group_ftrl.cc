// FTRL with group lasso: a row whose norm is small becomes zero as a whole.
#include <algorithm>
#include <cmath>

#include "server/ps/optimizer/step_kernels.h"
#include "server/ps/table/row_loop.h"
#include "server/ps/table/row_rules.h"

namespace weir {
namespace {

template <bool kRoot>
struct GroupFtrlKernel {
  FtrlKernel<kRoot> ftrl;
  double threshold;  // sqrt(dim) l21

  WEIR_KERNEL void Row(int, float* row, const UnalignedFloat* g,
                       int64_t dim) const {
    Columns(row, row + dim, row + 2 * dim, g, dim);
  }

  WEIR_KERNEL void Columns(float* __restrict w, float* __restrict accumulator,
                           float* __restrict linear,
                           const UnalignedFloat* __restrict g,
                           int64_t dim) const {
    // n and z as in ftrl.cc. The soft-thresholded linear terms take the values'
    // place in between, with the sign of the values to come.
    for (int64_t i = 0; i < dim; ++i) {
      const float n = accumulator[i];
      const float n_new = n + g[i] * g[i];
      const float shrunk = g[i] + ftrl.two_shrinkage * w[i];
      const float z =
          linear[i] +
          (shrunk - (ftrl.Power(n_new) - ftrl.Power(n)) / ftrl.rate * w[i]);
      accumulator[i] = n_new;
      linear[i] = z;
      w[i] = std::fabs(z) > ftrl.l1 ? std::copysign(ftrl.l1, z) - z : 0.0f;
    }
    double sum = 0;
    for (int64_t i = 0; i < dim; ++i) {
      sum += static_cast<double>(w[i]) * static_cast<double>(w[i]);
    }
    const double norm = std::sqrt(sum);
    // max(0, 1 - sqrt(dim) l21 / |s|), without a division by a norm of 0.
    float factor = 0.0f;
    if (norm > threshold) {
      factor = static_cast<float>(1 - threshold / norm);
    }
    for (int64_t i = 0; i < dim; ++i) {
      const float quadratic =
          ftrl.Power(accumulator[i]) / ftrl.rate + ftrl.two_l2;
      w[i] = factor == 0.0f || w[i] == 0.0f ? 0.0f : factor * w[i] / quadratic;
    }
  }
};

class GroupFtrlRows : public RowOptimizer {
 public:
  explicit GroupFtrlRows(const TableFtrl& spec)
      : RowOptimizer(
            "group_ftrl",
            {{"accumulator", static_cast<float>(spec.initial_accumulator())},
             {"linear", 0.0f}}),
        spec_(spec) {}

  void Apply(const RowStep& step, const RowBatch& batch) const override {
    // The equations divide by the rate.
    if (static_cast<float>(step.learning_rate) == 0) {
      return;
    }
    const double threshold =
        std::sqrt(static_cast<double>(batch.dim)) * spec_.l21();
    // sqrt vectorises, pow does not.
    WithFlag(spec_.learning_rate_power() == -0.5, [&](auto root) {
      ApplyRows(
          GroupFtrlKernel<root>{FtrlKernelOf<root>(spec_, step.learning_rate),
                                threshold},
          batch);
    });
  }

 private:
  const TableFtrl spec_;
};

}  // namespace

std::unique_ptr<RowOptimizer> MakeGroupFtrl(const TableFtrl& spec) {
  return std::make_unique<GroupFtrlRows>(spec);
}

}  // namespace weir
