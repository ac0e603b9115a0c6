#include "server/ps/optimizer/adadelta.h"

#include <cmath>

#include "common/base/status.h"
#include "server/ps/optimizer/apply_loop.h"
#include "server/ps/optimizer/hyper_parameters.h"

namespace weir {
namespace {

// kDecay: without weight decay the loop does not read w for the gradient.
template <bool kDecay>
struct AdadeltaKernel {
  static constexpr int kStateArrays = 2;
  float decay, rho, one_minus_rho, epsilon, minus_rate;

  WEIR_KERNEL void Step(float g, float& w, float& square_avg,
                        float& acc_delta) const {
    g = kDecay ? g + decay * w : g;
    const float s = square_avg * rho + (one_minus_rho * g) * g;
    square_avg = s;
    const float u = std::sqrt(acc_delta + epsilon) / std::sqrt(s + epsilon) * g;
    acc_delta = acc_delta * rho + (one_minus_rho * u) * u;
    w = w + minus_rate * u;
  }
};

class AdadeltaOptimizer : public Optimizer {
 public:
  AdadeltaOptimizer(double rho, double epsilon, double weight_decay)
      : Optimizer("adadelta", {{"square_avg", 0.0f}, {"acc_delta", 0.0f}}),
        rho_(rho),
        epsilon_(epsilon),
        weight_decay_(weight_decay) {}

  void Apply(const StepContext& context, float* values, float* const* state,
             const char* gradient, int64_t count) const override {
    const float decay =
        static_cast<float>(context.weight_decay.value_or(weight_decay_));
    const float rho = static_cast<float>(rho_);
    // 1 - rho in double, rounded once: 1.0f - rho would have other bits.
    const float one_minus_rho = static_cast<float>(1 - rho_);
    const float epsilon = static_cast<float>(epsilon_);
    const float minus_rate = static_cast<float>(-context.learning_rate);
    if (decay != 0) {
      ApplyKernel(
          AdadeltaKernel<true>{decay, rho, one_minus_rho, epsilon, minus_rate},
          values, state, gradient, count);
    } else {
      ApplyKernel(
          AdadeltaKernel<false>{decay, rho, one_minus_rho, epsilon, minus_rate},
          values, state, gradient, count);
    }
  }

 private:
  const double rho_;
  const double epsilon_;
  const double weight_decay_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdadelta(
    const Adadelta& spec, const std::string& path) {
  // PyTorch's defaults.
  const double rho = ValueOr(spec.has_rho(), spec.rho(), 0.9);
  const double epsilon = ValueOr(spec.has_epsilon(), spec.epsilon(), 1e-6);
  WEIR_RETURN_IF_ERROR(CheckUnitOpen(path, "rho", rho));
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "epsilon", epsilon));
  WEIR_RETURN_IF_ERROR(
      CheckNonNegative(path, "weight_decay", spec.weight_decay()));
  return std::make_unique<AdadeltaOptimizer>(rho, epsilon, spec.weight_decay());
}

}  // namespace weir
