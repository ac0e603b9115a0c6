#include "server/ps/optimizer/adam.h"

#include <algorithm>
#include <cmath>

#include "common/base/status.h"
#include "server/ps/optimizer/apply_loop.h"
#include "server/ps/optimizer/hyper_parameters.h"

namespace weir {
namespace {

enum class Decay : int { kNone, kL2, kDecoupled };

struct Constants {
  float decay;  // kL2: added to g; kDecoupled: the factor of w
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float root_correction2, epsilon, minus_step;
};

template <Decay kDecay>
struct Moments : Constants {
  // Returns the new second moment; moves w's decay and m.
  WEIR_KERNEL float Accumulate(float g, float& w, float& m, float v) const {
    if constexpr (kDecay == Decay::kL2) {
      g = g + decay * w;
    } else if constexpr (kDecay == Decay::kDecoupled) {
      w = w * decay;
    }
    m = m * beta1 + one_minus_beta1 * g;
    return v * beta2 + (one_minus_beta2 * g) * g;
  }
  WEIR_KERNEL void Move(float& w, float m, float x) const {
    const float denominator = std::sqrt(x) / root_correction2 + epsilon;
    w = w + (minus_step * m) / denominator;
  }
};

template <Decay kDecay>
struct AdamKernel : Moments<kDecay> {
  static constexpr int kStateArrays = 2;
  WEIR_KERNEL void Step(float g, float& w, float& m, float& v) const {
    v = this->Accumulate(g, w, m, v);
    this->Move(w, m, v);
  }
};

template <Decay kDecay>
struct AmsGradKernel : Moments<kDecay> {
  static constexpr int kStateArrays = 3;
  WEIR_KERNEL void Step(float g, float& w, float& m, float& v,
                        float& v_max) const {
    v = this->Accumulate(g, w, m, v);
    const float x = v_max < v ? v : v_max;
    v_max = x;
    this->Move(w, m, x);
  }
};

struct AdamOptions {
  double beta1, beta2, epsilon, weight_decay;
  bool decoupled, amsgrad;
};

class AdamOptimizer : public Optimizer {
 public:
  explicit AdamOptimizer(const AdamOptions& options)
      : Optimizer(options.decoupled ? "adamw" : "adam", StateOf(options)),
        options_(options) {}

  absl::Status CheckMomentum(double value,
                             const std::string& path) const override {
    return CheckUnitOpen(path, "momentum", value);
  }

  void Apply(const StepContext& context, float* values, float* const* state,
             const char* gradient, int64_t count) const override {
    const double decay = context.weight_decay.value_or(options_.weight_decay);
    if (decay == 0) {
      Choose<Decay::kNone>(0, context, values, state, gradient, count);
    } else if (options_.decoupled) {
      Choose<Decay::kDecoupled>(
          static_cast<float>(1 - context.learning_rate * decay), context,
          values, state, gradient, count);
    } else {
      Choose<Decay::kL2>(static_cast<float>(decay), context, values, state,
                         gradient, count);
    }
  }

 private:
  static std::vector<StateSpec> StateOf(const AdamOptions& options) {
    std::vector<StateSpec> state = {{"m", 0.0f}, {"v", 0.0f}};
    if (options.amsgrad) {
      state.push_back({"v_max", 0.0f});
    }
    return state;
  }

  template <Decay kDecay>
  void Choose(float decay, const StepContext& context, float* values,
              float* const* state, const char* gradient, int64_t count) const {
    const double step = static_cast<double>(context.step) + 1;
    const double beta1 = context.momentum.value_or(options_.beta1);
    const double correction1 = 1 - std::pow(beta1, step);
    const double correction2 = 1 - std::pow(options_.beta2, step);
    const Constants constants = {
        decay,
        static_cast<float>(beta1),
        static_cast<float>(1 - beta1),
        static_cast<float>(options_.beta2),
        static_cast<float>(1 - options_.beta2),
        static_cast<float>(std::sqrt(correction2)),
        static_cast<float>(options_.epsilon),
        static_cast<float>(-(context.learning_rate / correction1)),
    };
    if (options_.amsgrad) {
      ApplyKernel(AmsGradKernel<kDecay>{{constants}}, values, state, gradient,
                  count);
    } else {
      ApplyKernel(AdamKernel<kDecay>{{constants}}, values, state, gradient,
                  count);
    }
  }

  const AdamOptions options_;
};

absl::StatusOr<std::unique_ptr<Optimizer>> Create(const AdamOptions& options,
                                                  const std::string& path) {
  WEIR_RETURN_IF_ERROR(CheckUnitOpen(path, "beta1", options.beta1));
  WEIR_RETURN_IF_ERROR(CheckUnitOpen(path, "beta2", options.beta2));
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "epsilon", options.epsilon));
  WEIR_RETURN_IF_ERROR(
      CheckNonNegative(path, "weight_decay", options.weight_decay));
  return std::make_unique<AdamOptimizer>(options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdam(const Adam& spec,
                                                      const std::string& path) {
  return Create({spec.has_beta1() ? spec.beta1() : 0.9,
                 spec.has_beta2() ? spec.beta2() : 0.999,
                 spec.has_epsilon() ? spec.epsilon() : 1e-8,
                 spec.weight_decay(), false, spec.amsgrad()},
                path);
}

absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdamW(
    const AdamW& spec, const std::string& path) {
  return Create({spec.has_beta1() ? spec.beta1() : 0.9,
                 spec.has_beta2() ? spec.beta2() : 0.999,
                 spec.has_epsilon() ? spec.epsilon() : 1e-8,
                 spec.has_weight_decay() ? spec.weight_decay() : 0.01, true,
                 spec.amsgrad()},
                path);
}

}  // namespace weir
