#include "server/ps/optimizer/adam.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

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
    // The maximum of the uncorrected moments, as PyTorch takes it; the paper
    // has no correction.
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
  AdamOptimizer(std::string name, const AdamOptions& options)
      : Optimizer(std::move(name), StateOf(options)), options_(options) {}

  // A push's momentum takes the place of beta1.
  absl::Status CheckMomentum(double value,
                             const std::string& path) const override {
    return CheckUnitOpen(path, "momentum", value);
  }

  void Apply(const StepContext& context, float* values, float* const* state,
             const char* gradient, int64_t count) const override {
    // The kind of decay is a template argument: the loop has no branch on it.
    const double decay = context.weight_decay.value_or(options_.weight_decay);
    if (decay == 0) {
      Choose<Decay::kNone>(0, context, values, state, gradient, count);
    } else if (options_.decoupled) {
      // AdamW: w (1 - lr weight_decay), apart from the gradient.
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
    // Both moments begin at 0; the corrections 1 - beta^(t + 1) make up for
    // that. In double, as PyTorch computes them in Python.
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

absl::StatusOr<std::unique_ptr<Optimizer>> Create(const std::string& name,
                                                  const AdamOptions& options,
                                                  const std::string& path) {
  WEIR_RETURN_IF_ERROR(CheckUnitOpen(path, "beta1", options.beta1));
  WEIR_RETURN_IF_ERROR(CheckUnitOpen(path, "beta2", options.beta2));
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "epsilon", options.epsilon));
  WEIR_RETURN_IF_ERROR(
      CheckNonNegative(path, "weight_decay", options.weight_decay));
  return std::make_unique<AdamOptimizer>(name, options);
}

// The fields that adam and adamw share, with PyTorch's defaults.
template <class Spec>
AdamOptions OptionsOf(const Spec& spec) {
  AdamOptions options = {};
  options.beta1 = ValueOr(spec.has_beta1(), spec.beta1(), 0.9);
  options.beta2 = ValueOr(spec.has_beta2(), spec.beta2(), 0.999);
  options.epsilon = ValueOr(spec.has_epsilon(), spec.epsilon(), 1e-8);
  options.amsgrad = spec.amsgrad();
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdam(const Adam& spec,
                                                      const std::string& path) {
  AdamOptions options = OptionsOf(spec);
  options.weight_decay = spec.weight_decay();
  return Create("adam", options, path);
}

absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdamW(
    const AdamW& spec, const std::string& path) {
  AdamOptions options = OptionsOf(spec);
  // Unlike adam, adamw decays by default.
  options.weight_decay =
      ValueOr(spec.has_weight_decay(), spec.weight_decay(), 0.01);
  options.decoupled = true;
  return Create("adamw", options, path);
}

}  // namespace weir
