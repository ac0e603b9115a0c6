#include "server/ps/optimizer/adagrad.h"

#include "common/base/status.h"
#include "server/ps/optimizer/apply_loop.h"
#include "server/ps/optimizer/hyper_parameters.h"
#include "server/ps/optimizer/step_kernels.h"

namespace weir {
namespace {

class AdagradOptimizer : public Optimizer {
 public:
  AdagradOptimizer(const Adagrad& spec, double epsilon)
      : Optimizer("adagrad",
                  {{"sum", static_cast<float>(spec.initial_accumulator())}}),
        lr_decay_(spec.lr_decay()),
        weight_decay_(spec.weight_decay()),
        epsilon_(epsilon) {}

  void Apply(const StepContext& context, float* values, float* const* state,
             const char* gradient, int64_t count) const override {
    // lr / (1 + t lr_decay): t counts from 0, so the first step has the rate as
    // it was declared.
    const double rate = context.learning_rate /
                        (1 + static_cast<double>(context.step) * lr_decay_);
    const float minus_rate = static_cast<float>(-rate);
    const float epsilon = static_cast<float>(epsilon_);
    const float decay =
        static_cast<float>(context.weight_decay.value_or(weight_decay_));
    if (decay != 0) {
      ApplyKernel(AdagradKernel<true>{decay, minus_rate, epsilon}, values,
                  state, gradient, count);
    } else {
      ApplyKernel(AdagradKernel<false>{decay, minus_rate, epsilon}, values,
                  state, gradient, count);
    }
  }

 private:
  const double lr_decay_;
  const double weight_decay_;
  const double epsilon_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdagrad(
    const Adagrad& spec, const std::string& path) {
  // PyTorch's default.
  const double epsilon = ValueOr(spec.has_epsilon(), spec.epsilon(), 1e-10);
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "lr_decay", spec.lr_decay()));
  WEIR_RETURN_IF_ERROR(
      CheckNonNegative(path, "weight_decay", spec.weight_decay()));
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "initial_accumulator",
                                        spec.initial_accumulator()));
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "epsilon", epsilon));
  return std::make_unique<AdagradOptimizer>(spec, epsilon);
}

}  // namespace weir
