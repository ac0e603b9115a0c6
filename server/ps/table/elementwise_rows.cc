// SGD, Adagrad and FTRL of rows: the kernels of the dense optimizers.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "server/ps/optimizer/hyper_parameters.h"
#include "server/ps/optimizer/step_kernels.h"
#include "server/ps/table/row_loop.h"
#include "server/ps/table/row_rules.h"

namespace weir {
namespace {

class SgdRows : public RowOptimizer {
 public:
  SgdRows() : RowOptimizer("sgd", {}) {}

  void Apply(const RowStep& step, const RowBatch& batch) const override {
    ApplyRows(
        ElementwiseRow<SgdKernel<false>>{
            {0.0f, static_cast<float>(-step.learning_rate)}},
        batch);
  }
};

class AdagradRows : public RowOptimizer {
 public:
  explicit AdagradRows(const RowAdagrad& spec)
      : RowOptimizer("adagrad",
                     {{"sum", static_cast<float>(spec.initial_accumulator)}}),
        epsilon_(static_cast<float>(spec.epsilon)) {}

  void Apply(const RowStep& step, const RowBatch& batch) const override {
    ApplyRows(
        ElementwiseRow<AdagradKernel<false>>{
            {0.0f, static_cast<float>(-step.learning_rate), epsilon_}},
        batch);
  }

 private:
  const float epsilon_;
};

class FtrlRows : public RowOptimizer {
 public:
  explicit FtrlRows(const RowFtrl& spec)
      : RowOptimizer("ftrl", {{"accumulator",
                               static_cast<float>(spec.initial_accumulator)},
                              {"linear", 0.0f}}),
        spec_(spec) {}

  void Apply(const RowStep& step, const RowBatch& batch) const override {
    const double rate = step.learning_rate;
    // The equations divide by the rate. In float, as the kernel does: a rate
    // that is too small for it is 0 there.
    if (static_cast<float>(rate) == 0) {
      return;
    }
    const float two_l2 =
        static_cast<float>(2 * (spec_.l2 + spec_.beta / (2 * rate)));
    const float power = static_cast<float>(-spec_.learning_rate_power);
    const float l1 = static_cast<float>(spec_.l1);
    const float two_shrinkage = static_cast<float>(2 * spec_.l2_shrinkage);
    const float narrow_rate = static_cast<float>(rate);
    if (spec_.learning_rate_power == -0.5) {
      ApplyRows(ElementwiseRow<FtrlKernel<true>>{{power, narrow_rate, l1,
                                                  two_l2, two_shrinkage}},
                batch);
    } else {
      ApplyRows(ElementwiseRow<FtrlKernel<false>>{{power, narrow_rate, l1,
                                                   two_l2, two_shrinkage}},
                batch);
    }
  }

 private:
  const RowFtrl spec_;
};

}  // namespace

RowOptimizerOr CreateRowSgd(const RowSgd&, const std::string&) {
  return std::make_unique<SgdRows>();
}

RowOptimizerOr CreateRowAdagrad(const RowAdagrad& spec,
                                const std::string& path) {
  WEIR_RETURN_IF_ERROR(
      CheckNonNegative(path, "initial_accumulator", spec.initial_accumulator));
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "epsilon", spec.epsilon));
  return std::make_unique<AdagradRows>(spec);
}

absl::Status CheckFtrl(const RowFtrl& spec, const std::string& path) {
  // Written so that NaN fails, too.
  if (!(spec.learning_rate_power <= 0 && spec.learning_rate_power >= -10)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ".learning_rate_power: ", spec.learning_rate_power,
                     " is not in [-10, 0]"));
  }
  WEIR_RETURN_IF_ERROR(
      CheckNonNegative(path, "initial_accumulator", spec.initial_accumulator));
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "l1", spec.l1));
  WEIR_RETURN_IF_ERROR(CheckNonNegative(path, "l2", spec.l2));
  WEIR_RETURN_IF_ERROR(
      CheckNonNegative(path, "l2_shrinkage", spec.l2_shrinkage));
  return CheckNonNegative(path, "beta", spec.beta);
}

RowOptimizerOr CreateRowFtrl(const RowFtrl& spec, const std::string& path) {
  WEIR_RETURN_IF_ERROR(CheckFtrl(spec, path));
  return std::make_unique<FtrlRows>(spec);
}

}  // namespace weir
