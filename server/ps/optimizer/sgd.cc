// Stochastic gradient descent with optional momentum, dampening, Nesterov's
// look-ahead and L2 weight decay, in PyTorch's dialect.
//
//   d = g + weight_decay w
//   b = d at t = 0, else momentum b + (1 - dampening) d     (momentum != 0)
//   d = nesterov ? d + momentum b : b                       (momentum != 0)
//   w = w - lr d
// State: "momentum" (b) when momentum != 0, else none.
// Source: Polyak 1964; Sutskever et al., ICML 2013; torch.optim.SGD.
#include "server/ps/optimizer/apply_loop.h"
#include "server/ps/optimizer/members.h"
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
      : Optimizer("sgd", StateOf(spec)), spec_(spec) {}

  void Apply(const StepContext& context, float* values, float* const* state,
             const char* gradient, int64_t count) const override {
    const float decay =
        static_cast<float>(context.weight_decay.value_or(spec_.weight_decay()));
    const float minus_rate = static_cast<float>(-context.learning_rate);
    // A push may set the momentum to 0: the buffer then keeps its contents.
    const double given = context.momentum.value_or(spec_.momentum());
    const float momentum = static_cast<float>(given);
    const float undamped = static_cast<float>(1 - spec_.dampening());
    const auto apply = [&](const auto& kernel) {
      ApplyKernel(kernel, values, state, gradient, count);
    };
    WithFlag(decay != 0, [&](auto decays) {
      if (given == 0) {
        apply(SgdKernel<decays>{decay, minus_rate});
        return;
      }
      // b = d at t = 0, as PyTorch begins: neither momentum nor dampening
      // counts in b in the first step.
      WithFlag(context.step == 0, [&](auto first) {
        WithFlag(spec_.nesterov(), [&](auto nesterov) {
          apply(MomentumKernel<decays, first, nesterov>{decay, minus_rate,
                                                        momentum, undamped});
        });
      });
    });
  }

 private:
  // Without momentum there is no buffer, which would be as large as the values.
  static std::vector<StateSpec> StateOf(const Sgd& spec) {
    if (spec.momentum() == 0) {
      return {};
    }
    return {{"momentum", 0.0f}};
  }

  const Sgd spec_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeSgd(const Sgd& spec) {
  return std::make_unique<SgdOptimizer>(spec);
}

}  // namespace weir
