#include "server/ps/optimizer/optimizer.h"

#include "absl/strings/str_cat.h"
#include "server/ps/optimizer/adadelta.h"
#include "server/ps/optimizer/adagrad.h"
#include "server/ps/optimizer/adam.h"
#include "server/ps/optimizer/ftrl.h"
#include "server/ps/optimizer/moving_average.h"
#include "server/ps/optimizer/rmsprop.h"
#include "server/ps/optimizer/sgd.h"

namespace weir {

// The members keep the invariants. I1: their kernels run element by element in
// apply_loop.h. I2: Apply computes scalars in double and rounds each once. I3:
// they have no field that changes, so values, state and t are all there is.

absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(
    const OptimizerSpec& spec, const std::string& field_path) {
  switch (spec.kind_case()) {
    case OptimizerSpec::kSgd:
      return CreateSgd(spec.sgd(), field_path + ".sgd");
    case OptimizerSpec::kAdagrad:
      return CreateAdagrad(spec.adagrad(), field_path + ".adagrad");
    case OptimizerSpec::kRmsprop:
      return CreateRmsProp(spec.rmsprop(), field_path + ".rmsprop");
    case OptimizerSpec::kAdadelta:
      return CreateAdadelta(spec.adadelta(), field_path + ".adadelta");
    case OptimizerSpec::kAdam:
      return CreateAdam(spec.adam(), field_path + ".adam");
    case OptimizerSpec::kAdamw:
      return CreateAdamW(spec.adamw(), field_path + ".adamw");
    case OptimizerSpec::kFtrl:
      return CreateFtrl(spec.ftrl(), field_path + ".ftrl");
    case OptimizerSpec::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      field_path, ": no kind is set; choose one of sgd, adagrad, rmsprop, ",
      "adadelta, adam, adamw, ftrl, for example \"", field_path,
      " { sgd {} }\""));
}

absl::StatusOr<std::unique_ptr<Optimizer>> CreateMovingAverage(
    double rate, const std::string& field_path) {
  return MakeMovingAverage(rate, field_path);
}

}  // namespace weir
