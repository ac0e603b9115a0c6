// RMSProp, optionally centered and with momentum, in PyTorch's dialect.
//
//   g = g + weight_decay w
//   s = alpha s + (1 - alpha) g g
//   a = alpha a + (1 - alpha) g                              (centered)
//   r = g / (sqrt(centered ? s - a a : s) + epsilon)
//   momentum > 0:  b = momentum b + r,  w = w - lr b
//   else:          w = w - lr r
// State: "square_avg" (s), then "grad_avg" (a) when centered, then "momentum"
// (b) when momentum > 0, all from 0.
// Source: Tieleman and Hinton, Coursera lecture 6.5, 2012; Graves 2013, eq. 40
//         (centered); torch.optim.RMSprop.
#include <cmath>

#include "server/ps/optimizer/apply_loop.h"
#include "server/ps/optimizer/members.h"

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
  explicit RmsPropOptimizer(const RmsProp& spec)
      : Optimizer("rmsprop", StateOf(spec)), spec_(spec) {}

  void Apply(const StepContext& context, float* values, float* const* state,
             const char* gradient, int64_t count) const override {
    const double decay = context.weight_decay.value_or(spec_.weight_decay());
    const double momentum = context.momentum.value_or(spec_.momentum());
    const Constants constants = {static_cast<float>(decay),
                                 static_cast<float>(spec_.alpha()),
                                 static_cast<float>(1 - spec_.alpha()),
                                 static_cast<float>(spec_.epsilon()),
                                 static_cast<float>(momentum),
                                 static_cast<float>(-context.learning_rate)};
    // The branches on options are made here, once for a run of elements.
    WithFlag(constants.decay != 0, [&](auto decays) {
      WithFlag(spec_.centered(), [&](auto centered) {
        WithFlag(momentum != 0, [&](auto moves) {
          ApplyKernel(RmsPropKernel<decays, centered, moves>{constants}, values,
                      state, gradient, count);
        });
      });
    });
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

  const RmsProp spec_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeRmsProp(const RmsProp& spec) {
  return std::make_unique<RmsPropOptimizer>(spec);
}

}  // namespace weir
