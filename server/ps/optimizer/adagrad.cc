// Adagrad, in PyTorch's dialect.
//
//   g = g + weight_decay w
//   s = s + g g
//   w = w - lr / (1 + t lr_decay) g / (sqrt(s) + epsilon)
// State: "sum" (s), from initial_accumulator.
// Source: Duchi, Hazan, Singer, JMLR 2011, figure 1 (diagonal);
//         torch.optim.Adagrad.
#include "server/ps/optimizer/apply_loop.h"
#include "server/ps/optimizer/members.h"
#include "server/ps/optimizer/step_kernels.h"

namespace weir {
namespace {

class AdagradOptimizer : public Optimizer {
 public:
  explicit AdagradOptimizer(const Adagrad& spec)
      : Optimizer("adagrad",
                  {{"sum", static_cast<float>(spec.initial_accumulator())}}),
        spec_(spec) {}

  void Apply(const StepContext& context, float* values, float* const* state,
             const char* gradient, int64_t count) const override {
    // lr / (1 + t lr_decay): t counts from 0, so the first step has the rate as
    // it was declared.
    const double rate =
        context.learning_rate /
        (1 + static_cast<double>(context.step) * spec_.lr_decay());
    const float minus_rate = static_cast<float>(-rate);
    const float epsilon = static_cast<float>(spec_.epsilon());
    const float decay =
        static_cast<float>(context.weight_decay.value_or(spec_.weight_decay()));
    WithFlag(decay != 0, [&](auto decays) {
      ApplyKernel(AdagradKernel<decays>{decay, minus_rate, epsilon}, values,
                  state, gradient, count);
    });
  }

 private:
  const Adagrad spec_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeAdagrad(const Adagrad& spec) {
  return std::make_unique<AdagradOptimizer>(spec);
}

}  // namespace weir
