// Adadelta, in PyTorch's dialect.
//
//   g = g + weight_decay w
//   s = rho s + (1 - rho) g g
//   u = sqrt(d + epsilon) / sqrt(s + epsilon) g
//   d = rho d + (1 - rho) u u
//   w = w - lr u
// State: "square_avg" (s), "acc_delta" (d), from 0.
// Source: Zeiler, arXiv 1212.5701, algorithm 1; torch.optim.Adadelta.
#include <cmath>

#include "server/ps/optimizer/apply_loop.h"
#include "server/ps/optimizer/members.h"

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
  explicit AdadeltaOptimizer(const Adadelta& spec)
      : Optimizer("adadelta", {{"square_avg", 0.0f}, {"acc_delta", 0.0f}}),
        spec_(spec) {}

  void Apply(const StepContext& context, float* values, float* const* state,
             const char* gradient, int64_t count) const override {
    const float decay =
        static_cast<float>(context.weight_decay.value_or(spec_.weight_decay()));
    const float rho = static_cast<float>(spec_.rho());
    // 1 - rho in double, rounded once: 1.0f - rho would have other bits.
    const float one_minus_rho = static_cast<float>(1 - spec_.rho());
    const float epsilon = static_cast<float>(spec_.epsilon());
    const float minus_rate = static_cast<float>(-context.learning_rate);
    WithFlag(decay != 0, [&](auto decays) {
      ApplyKernel(AdadeltaKernel<decays>{decay, rho, one_minus_rho, epsilon,
                                         minus_rate},
                  values, state, gradient, count);
    });
  }

 private:
  const Adadelta spec_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeAdadelta(const Adadelta& spec) {
  return std::make_unique<AdadeltaOptimizer>(spec);
}

}  // namespace weir
