// FTRL-Proximal, in TensorFlow's dialect (PyTorch has none).
//
//   p  = -learning_rate_power                      (0.5 by default)
//   n' = n + g g
//   z  = z + g + 2 l2_shrinkage w - (n'^p - n^p) / lr w
//   w  = |z| > l1 ? (sign(z) l1 - z) / (n'^p / lr + 2 (l2 + beta / (2 lr))) : 0
//   n  = n'
// A learning rate of 0 changes nothing at all (the equations divide by it).
// State: "accumulator" (n) from initial_accumulator, "linear" (z) from 0.
// As in TensorFlow, a value before its first step is not in z: with l1 = 0
// and g = 0 the first step keeps it only in part.
// Source: McMahan et al., KDD 2013, algorithm 1; TensorFlow,
//         core/kernels/training_ops.cc, ApplyFtrlV2; Keras's beta.
#include "server/ps/optimizer/apply_loop.h"
#include "server/ps/optimizer/members.h"
#include "server/ps/optimizer/step_kernels.h"

namespace weir {
namespace {

class FtrlOptimizer : public Optimizer {
 public:
  explicit FtrlOptimizer(const Ftrl& spec)
      : Optimizer("ftrl", {{"accumulator",
                            static_cast<float>(spec.initial_accumulator())},
                           {"linear", 0.0f}}),
        spec_(spec) {}

  void Apply(const StepContext& context, float* values, float* const* state,
             const char* gradient, int64_t count) const override {
    const double rate = context.learning_rate;
    // The equations divide by the rate. In float, as the kernel does: a rate
    // that is too small for it is 0 there.
    if (static_cast<float>(rate) == 0) {
      return;
    }
    // The default power has a kernel with sqrt, which vectorises; pow does not.
    WithFlag(spec_.learning_rate_power() == -0.5, [&](auto root) {
      ApplyKernel(FtrlKernelOf<root>(spec_, rate), values, state, gradient,
                  count);
    });
  }

 private:
  const Ftrl spec_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeFtrl(const Ftrl& spec) {
  return std::make_unique<FtrlOptimizer>(spec);
}

}  // namespace weir
