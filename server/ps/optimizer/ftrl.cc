#include "server/ps/optimizer/ftrl.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "server/ps/optimizer/apply_loop.h"
#include "server/ps/optimizer/hyper_parameters.h"
#include "server/ps/optimizer/step_kernels.h"

namespace weir {
namespace {

class FtrlOptimizer : public Optimizer {
 public:
  FtrlOptimizer(const Ftrl& spec, double learning_rate_power,
                double initial_accumulator)
      : Optimizer("ftrl",
                  {{"accumulator", static_cast<float>(initial_accumulator)},
                   {"linear", 0.0f}}),
        power_(-learning_rate_power),
        l1_(spec.l1()),
        l2_(spec.l2()),
        l2_shrinkage_(spec.l2_shrinkage()),
        beta_(spec.beta()) {}

  void Apply(const StepContext& context, float* values, float* const* state,
             const char* gradient, int64_t count) const override {
    const double rate = context.learning_rate;
    // The equations divide by the rate. In float, as the kernel does: a rate
    // that is too small for it is 0 there.
    if (static_cast<float>(rate) == 0) {
      return;
    }
    const float two_l2 = static_cast<float>(2 * (l2_ + beta_ / (2 * rate)));
    const float two_shrinkage = static_cast<float>(2 * l2_shrinkage_);
    // The default power has a kernel with sqrt, which vectorises; pow does not.
    if (power_ == 0.5) {
      ApplyKernel(
          FtrlKernel<true>{0.5f, static_cast<float>(rate),
                           static_cast<float>(l1_), two_l2, two_shrinkage},
          values, state, gradient, count);
    } else {
      ApplyKernel(
          FtrlKernel<false>{static_cast<float>(power_),
                            static_cast<float>(rate), static_cast<float>(l1_),
                            two_l2, two_shrinkage},
          values, state, gradient, count);
    }
  }

 private:
  const double power_;
  const double l1_;
  const double l2_;
  const double l2_shrinkage_;
  const double beta_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateFtrl(const Ftrl& spec,
                                                      const std::string& path) {
  // TensorFlow's defaults.
  const double power =
      ValueOr(spec.has_learning_rate_power(), spec.learning_rate_power(), -0.5);
  const double initial =
      ValueOr(spec.has_initial_accumulator(), spec.initial_accumulator(), 0.1);
  // Written so that NaN fails, too.
  if (!(power <= 0 && power >= -10)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ".learning_rate_power: ", power, " is not in [-10, 0]"));
  }
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "initial_accumulator", initial));
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "l1", spec.l1()));
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "l2", spec.l2()));
  WEIR_RETURN_IF_ERROR(
      CheckNonNegative(path, "l2_shrinkage", spec.l2_shrinkage()));
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "beta", spec.beta()));
  return std::make_unique<FtrlOptimizer>(spec, power, initial);
}

}  // namespace weir
