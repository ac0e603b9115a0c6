#include "server/ps/optimizer/rmsprop.h"

#include <cmath>

#include "common/base/status.h"
#include "server/ps/optimizer/apply_loop.h"
#include "server/ps/optimizer/hyper_parameters.h"

namespace weir {
namespace {

struct Constants {
  float decay, alpha, one_minus_alpha, epsilon, momentum, minus_rate;
};

template <bool kDecay, bool kCentered, bool kMomentum>
struct RmsPropKernel : Constants {
  static constexpr int kStateArrays =
      1 + (kCentered ? 1 : 0) + (kMomentum ? 1 : 0);

  // Step has as many arguments as the kernel has state arrays; what an option
  // leaves out is a local that the compiler drops.
  WEIR_KERNEL void Step(float g, float& w, float& square_avg) const {
    float unused = 0;
    Move(g, w, square_avg, unused, unused);
  }
  WEIR_KERNEL void Step(float g, float& w, float& square_avg,
                        float& other) const {
    float unused = 0;
    if constexpr (kCentered) {
      Move(g, w, square_avg, other, unused);
    } else {
      Move(g, w, square_avg, unused, other);
    }
  }
  WEIR_KERNEL void Step(float g, float& w, float& square_avg, float& grad_avg,
                        float& buffer) const {
    Move(g, w, square_avg, grad_avg, buffer);
  }

  WEIR_KERNEL void Move(float g, float& w, float& square_avg, float& grad_avg,
                        float& buffer) const {
    g = kDecay ? g + decay * w : g;
    const float s = square_avg * alpha + (one_minus_alpha * g) * g;
    square_avg = s;
    // Centered: the variance of the gradients, not their second moment.
    float x = s;
    if constexpr (kCentered) {
      const float a = grad_avg * alpha + one_minus_alpha * g;
      grad_avg = a;
      x = s - a * a;
    }
    const float denominator = std::sqrt(x) + epsilon;
    if constexpr (kMomentum) {
      const float b = buffer * momentum + g / denominator;
      buffer = b;
      w = w + minus_rate * b;
    } else {
      w = w + (minus_rate * g) / denominator;
    }
  }
};

class RmsPropOptimizer : public Optimizer {
 public:
  RmsPropOptimizer(const RmsProp& spec, double alpha, double epsilon)
      : Optimizer("rmsprop", StateOf(spec)),
        alpha_(alpha),
        epsilon_(epsilon),
        weight_decay_(spec.weight_decay()),
        momentum_(spec.momentum()),
        centered_(spec.centered()) {}

  absl::Status CheckMomentum(double value,
                             const std::string& path) const override {
    return CheckBufferedMomentum(path, name(), momentum_, value);
  }

  void Apply(const StepContext& context, float* values, float* const* state,
             const char* gradient, int64_t count) const override {
    const double decay = context.weight_decay.value_or(weight_decay_);
    const double momentum = context.momentum.value_or(momentum_);
    const Constants constants = {static_cast<float>(decay),
                                 static_cast<float>(alpha_),
                                 static_cast<float>(1 - alpha_),
                                 static_cast<float>(epsilon_),
                                 static_cast<float>(momentum),
                                 static_cast<float>(-context.learning_rate)};
    const auto apply = [&](const auto& kernel) {
      ApplyKernel(kernel, values, state, gradient, count);
    };
    if (constants.decay != 0) {
      Choose<true>(constants, momentum != 0, apply);
    } else {
      Choose<false>(constants, momentum != 0, apply);
    }
  }

 private:
  static std::vector<StateSpec> StateOf(const RmsProp& spec) {
    std::vector<StateSpec> state = {{"square_avg", 0.0f}};
    if (spec.centered()) {
      state.push_back({"grad_avg", 0.0f});
    }
    if (spec.momentum() != 0) {
      state.push_back({"momentum", 0.0f});
    }
    return state;
  }

  // The branches on options are made here, once for a run of elements.
  template <bool kDecay, class F>
  void Choose(const Constants& constants, bool moving, const F& apply) const {
    if (centered_ && moving) {
      apply(RmsPropKernel<kDecay, true, true>{constants});
    } else if (centered_) {
      apply(RmsPropKernel<kDecay, true, false>{constants});
    } else if (moving) {
      apply(RmsPropKernel<kDecay, false, true>{constants});
    } else {
      apply(RmsPropKernel<kDecay, false, false>{constants});
    }
  }

  const double alpha_;
  const double epsilon_;
  const double weight_decay_;
  const double momentum_;
  const bool centered_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateRmsProp(
    const RmsProp& spec, const std::string& path) {
  // PyTorch's defaults.
  const double alpha = ValueOr(spec.has_alpha(), spec.alpha(), 0.99);
  const double epsilon = ValueOr(spec.has_epsilon(), spec.epsilon(), 1e-8);
  WEIR_RETURN_IF_ERROR(CheckUnitOpen(path, "alpha", alpha));
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "epsilon", epsilon));
  WEIR_RETURN_IF_ERROR(
      CheckNonNegative(path, "weight_decay", spec.weight_decay()));
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "momentum", spec.momentum()));
  return std::make_unique<RmsPropOptimizer>(spec, alpha, epsilon);
}

}  // namespace weir
