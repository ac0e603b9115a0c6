#include "server/ps/optimizer/sgd.h"

#include "common/base/status.h"
#include "server/ps/optimizer/apply_loop.h"
#include "server/ps/optimizer/hyper_parameters.h"
#include "server/ps/optimizer/step_kernels.h"

namespace weir {
namespace {

template <bool kDecay, bool kFirst, bool kNesterov>
struct MomentumKernel {
  static constexpr int kStateArrays = 1;
  float decay, minus_rate, momentum, undamped;

  WEIR_KERNEL void Step(float g, float& w, float& buffer) const {
    const float d = kDecay ? g + decay * w : g;
    const float b = kFirst ? d : momentum * buffer + undamped * d;
    buffer = b;
    w = w + minus_rate * (kNesterov ? d + momentum * b : b);
  }
};

class SgdOptimizer : public Optimizer {
 public:
  explicit SgdOptimizer(const Sgd& spec)
      : Optimizer("sgd", StateOf(spec)),
        momentum_(spec.momentum()),
        dampening_(spec.dampening()),
        nesterov_(spec.nesterov()),
        weight_decay_(spec.weight_decay()) {}

  absl::Status CheckMomentum(double value,
                             const std::string& path) const override {
    return CheckBufferedMomentum(path, name(), momentum_, value);
  }

  void Apply(const StepContext& context, float* values, float* const* state,
             const char* gradient, int64_t count) const override {
    const float decay =
        static_cast<float>(context.weight_decay.value_or(weight_decay_));
    if (decay != 0) {
      Choose<true>(decay, context, values, state, gradient, count);
    } else {
      Choose<false>(decay, context, values, state, gradient, count);
    }
  }

 private:
  // Without momentum there is no buffer, which would be as large as the values.
  static std::vector<StateSpec> StateOf(const Sgd& spec) {
    if (spec.momentum() == 0) {
      return {};
    }
    return {{"momentum", 0.0f}};
  }

  template <bool kDecay>
  void Choose(float decay, const StepContext& context, float* values,
              float* const* state, const char* gradient, int64_t count) const {
    const float minus_rate = static_cast<float>(-context.learning_rate);
    // A push may set the momentum to 0: the buffer then keeps its contents.
    const double given = context.momentum.value_or(momentum_);
    const float momentum = static_cast<float>(given);
    const float undamped = static_cast<float>(1 - dampening_);
    const auto apply = [&](const auto& kernel) {
      ApplyKernel(kernel, values, state, gradient, count);
    };
    // b = d at t = 0, as PyTorch begins: neither momentum nor dampening counts
    // in b in the first step.
    if (given == 0) {
      apply(SgdKernel<kDecay>{decay, minus_rate});
    } else if (context.step == 0) {
      if (nesterov_) {
        apply(MomentumKernel<kDecay, true, true>{decay, minus_rate, momentum,
                                                 undamped});
      } else {
        apply(MomentumKernel<kDecay, true, false>{decay, minus_rate, momentum,
                                                  undamped});
      }
    } else if (nesterov_) {
      apply(MomentumKernel<kDecay, false, true>{decay, minus_rate, momentum,
                                                undamped});
    } else {
      apply(MomentumKernel<kDecay, false, false>{decay, minus_rate, momentum,
                                                 undamped});
    }
  }

  const double momentum_;
  const double dampening_;
  const bool nesterov_;
  const double weight_decay_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateSgd(const Sgd& spec,
                                                     const std::string& path) {
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "momentum", spec.momentum()));
  WEIR_RETURN_IF_ERROR(CheckUnitClosed(path, "dampening", spec.dampening()));
  WEIR_RETURN_IF_ERROR(
      CheckNonNegative(path, "weight_decay", spec.weight_decay()));
  // torch.optim.SGD defines the look-ahead for undamped momentum only.
  if (spec.nesterov() && (spec.momentum() == 0 || spec.dampening() != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ".nesterov: true needs momentum > 0 and dampening 0, but they ",
        "are ", spec.momentum(), " and ", spec.dampening()));
  }
  return std::make_unique<SgdOptimizer>(spec);
}

}  // namespace weir
