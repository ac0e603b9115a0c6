// Adam and AdamW, with AMSGrad as an option, in PyTorch's dialect.
//
//   Adam:  g = g + weight_decay w          AdamW: w = (1 - lr weight_decay) w
//   m = beta1 m + (1 - beta1) g
//   v = beta2 v + (1 - beta2) g g
//   x = amsgrad ? (v_max = max(v_max, v)) : v
//   w = w - lr / (1 - beta1^(t+1)) m / (sqrt(x) / sqrt(1 - beta2^(t+1)) + eps)
// State: "m", "v" and, for amsgrad, "v_max", all from 0.
// Source: Kingma and Ba, ICLR 2015, algorithm 1; Loshchilov and Hutter, ICLR
//         2019, algorithm 2; Reddi et al., ICLR 2018, algorithm 2 (with
//         PyTorch's maximum of the uncorrected v).
#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>

#include "server/ps/optimizer/apply_loop.h"
#include "server/ps/optimizer/members.h"

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

// Spec is Adam or AdamW, which have the same fields.
template <class Spec>
class AdamOptimizer : public Optimizer {
 public:
  AdamOptimizer(std::string name, const Spec& spec)
      : Optimizer(std::move(name), StateOf(spec)), spec_(spec) {}

  void Apply(const StepContext& context, float* values, float* const* state,
             const char* gradient, int64_t count) const override {
    const double decay = context.weight_decay.value_or(spec_.weight_decay());
    // AdamW: w (1 - lr weight_decay), apart from the gradient.
    double decay_factor = decay;
    if (kOwnDecay == Decay::kDecoupled) {
      decay_factor = 1 - context.learning_rate * decay;
    }
    // Both moments begin at 0; the corrections 1 - beta^(t + 1) make up for
    // that. In double, as PyTorch computes them in Python.
    const double step = static_cast<double>(context.step) + 1;
    const double beta1 = context.momentum.value_or(spec_.beta1());
    const double correction1 = 1 - std::pow(beta1, step);
    const double correction2 = 1 - std::pow(spec_.beta2(), step);
    const Constants constants = {
        static_cast<float>(decay_factor),
        static_cast<float>(beta1),
        static_cast<float>(1 - beta1),
        static_cast<float>(spec_.beta2()),
        static_cast<float>(1 - spec_.beta2()),
        static_cast<float>(std::sqrt(correction2)),
        static_cast<float>(spec_.epsilon()),
        static_cast<float>(-(context.learning_rate / correction1)),
    };
    // What is chosen is a template argument: the loop has no branch on it.
    WithFlag(decay != 0, [&](auto decays) {
      constexpr Decay kDecay = decays ? kOwnDecay : Decay::kNone;
      WithFlag(spec_.amsgrad(), [&](auto amsgrad) {
        using Kernel = std::conditional_t<amsgrad, AmsGradKernel<kDecay>,
                                          AdamKernel<kDecay>>;
        ApplyKernel(Kernel{{constants}}, values, state, gradient, count);
      });
    });
  }

 private:
  static constexpr Decay kOwnDecay =
      std::is_same_v<Spec, AdamW> ? Decay::kDecoupled : Decay::kL2;

  static std::vector<StateSpec> StateOf(const Spec& spec) {
    std::vector<StateSpec> state = {{"m", 0.0f}, {"v", 0.0f}};
    if (spec.amsgrad()) {
      state.push_back({"v_max", 0.0f});
    }
    return state;
  }

  const Spec spec_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeAdam(const Adam& spec) {
  return std::make_unique<AdamOptimizer<Adam>>("adam", spec);
}

std::unique_ptr<Optimizer> MakeAdamW(const AdamW& spec) {
  return std::make_unique<AdamOptimizer<AdamW>>("adamw", spec);
}

}  // namespace weir
