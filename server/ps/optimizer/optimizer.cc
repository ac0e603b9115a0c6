#include "server/ps/optimizer/optimizer.h"

#include "common/base/status.h"
#include "proto/job/field_rules.h"
#include "server/ps/optimizer/members.h"

namespace weir {

// The members keep the invariants. I1: their kernels run element by element in
// apply_loop.h. I2: Apply computes scalars in double and rounds each once. I3:
// they have no field that changes, so values, state and t are all there is.

absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(
    const OptimizerSpec& spec, const std::string& field_path) {
  OptimizerSpec filled = spec;
  FillDefaults(&filled);
  WEIR_RETURN_IF_ERROR(CheckFields(filled, field_path));
  // torch.optim.SGD defines the look-ahead for undamped momentum only.
  const Sgd& sgd = filled.sgd();
  if (sgd.nesterov() && (sgd.momentum() == 0 || sgd.dampening() != 0)) {
    return InvalidField(
        field_path + ".sgd.nesterov",
        "true needs momentum > 0 and dampening 0, but they are ",
        sgd.momentum(), " and ", sgd.dampening());
  }
  switch (filled.kind_case()) {
    case OptimizerSpec::kSgd:
      return MakeSgd(filled.sgd());
    case OptimizerSpec::kAdagrad:
      return MakeAdagrad(filled.adagrad());
    case OptimizerSpec::kRmsprop:
      return MakeRmsProp(filled.rmsprop());
    case OptimizerSpec::kAdadelta:
      return MakeAdadelta(filled.adadelta());
    case OptimizerSpec::kAdam:
      return MakeAdam(filled.adam());
    case OptimizerSpec::kAdamw:
      return MakeAdamW(filled.adamw());
    case OptimizerSpec::kFtrl:
      return MakeFtrl(filled.ftrl());
    case OptimizerSpec::KIND_NOT_SET:  // CheckFields refused it
      break;
  }
  return absl::InternalError(field_path + ": no kind is set");
}

}  // namespace weir
