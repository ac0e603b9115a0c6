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

absl::StatusOr<std::unique_ptr<UpdateRule>> CreateOptimizer(
    const Optimizer& spec, const std::string& field_path) {
  switch (spec.kind_case()) {
    case Optimizer::kSgd:
      return CreateSgd(spec.sgd(), field_path + ".sgd");
    case Optimizer::kAdagrad:
      return CreateAdagrad(spec.adagrad(), field_path + ".adagrad");
    case Optimizer::kRmsprop:
      return CreateRmsProp(spec.rmsprop(), field_path + ".rmsprop");
    case Optimizer::kAdadelta:
      return CreateAdadelta(spec.adadelta(), field_path + ".adadelta");
    case Optimizer::kAdam:
      return CreateAdam(spec.adam(), field_path + ".adam");
    case Optimizer::kAdamw:
      return CreateAdamW(spec.adamw(), field_path + ".adamw");
    case Optimizer::kFtrl:
      return CreateFtrl(spec.ftrl(), field_path + ".ftrl");
    case Optimizer::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      field_path, ": no kind is set; choose one of sgd, adagrad, rmsprop, ",
      "adadelta, adam, adamw, ftrl, for example \"", field_path,
      " { sgd {} }\""));
}

absl::StatusOr<std::unique_ptr<UpdateRule>> CreateMovingAverage(
    double rate, const std::string& field_path) {
  return CreateMovingAverageRule(rate, field_path);
}

}  // namespace weir
