// FTRL of rows, by the kernel of the dense optimizer; and with group lasso,
// where a row whose norm is small becomes zero as a whole.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "server/ps/optimizer/hyper_parameters.h"
#include "server/ps/optimizer/step_kernels.h"
#include "server/ps/table/row_loop.h"
#include "server/ps/table/row_optimizer.h"

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
    // n and z as in ftrl.h. The soft-thresholded linear terms take the values'
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

// Calls apply(kernel) with the dense optimizer's kernel for `spec` and `rate`.
template <class Apply>
void WithKernel(const RowFtrl& spec, double rate, const Apply& apply) {
  // The equations divide by the rate. In float, as the kernel does: a rate
  // that is too small for it is 0 there.
  if (static_cast<float>(rate) == 0) {
    return;
  }
  const auto make = [&]<bool kRoot>() {
    return FtrlKernel<kRoot>{
        static_cast<float>(-spec.learning_rate_power), static_cast<float>(rate),
        static_cast<float>(spec.l1),
        static_cast<float>(2 * (spec.l2 + spec.beta / (2 * rate))),
        static_cast<float>(2 * spec.l2_shrinkage)};
  };
  // sqrt vectorises, pow does not.
  if (spec.learning_rate_power == -0.5) {
    apply(make.template operator()<true>());
  } else {
    apply(make.template operator()<false>());
  }
}

}  // namespace

absl::Status RowFtrl::Check(const std::string& path) const {
  // Written so that NaN fails, too.
  if (!(learning_rate_power <= 0 && learning_rate_power >= -10)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ".learning_rate_power: ", learning_rate_power,
                     " is not in [-10, 0]"));
  }
  WEIR_RETURN_IF_ERROR(
      CheckNonNegative(path, "initial_accumulator", initial_accumulator));
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "l1", l1));
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "l2", l2));
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "l2_shrinkage", l2_shrinkage));
  return CheckNonNegative(path, "beta", beta);
}

std::vector<RowState> RowFtrl::State() const {
  return {{"accumulator", static_cast<float>(initial_accumulator)},
          {"linear", 0.0f}};
}

void RowFtrl::Move(const RowStep& step, const RowBatch& batch) const {
  WithKernel(*this, step.learning_rate,
             [&]<bool kRoot>(const FtrlKernel<kRoot>& kernel) {
               ApplyRows(ElementwiseRow<FtrlKernel<kRoot>>{kernel}, batch);
             });
}

absl::Status RowGroupFtrl::Check(const std::string& path) const {
  WEIR_RETURN_IF_ERROR(ftrl.Check(path));
  return CheckNonNegative(path, "l21", l21);
}

std::vector<RowState> RowGroupFtrl::State() const { return ftrl.State(); }

void RowGroupFtrl::Move(const RowStep& step, const RowBatch& batch) const {
  const double threshold = std::sqrt(static_cast<double>(batch.dim)) * l21;
  WithKernel(ftrl, step.learning_rate,
             [&]<bool kRoot>(const FtrlKernel<kRoot>& kernel) {
               ApplyRows(GroupFtrlKernel<kRoot>{kernel, threshold}, batch);
             });
}

}  // namespace weir
