#include "server/ps/optimizer/schedule.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "server/ps/optimizer/hyper_parameters.h"

namespace weir {
namespace {

absl::Status CheckSteps(const std::string& path, const std::string& field,
                        uint64_t value) {
  if (value == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ".", field, ": 0 is not a number of steps >= 1"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateSchedule(const Schedule& schedule,
                              const std::string& path) {
  WEIR_RETURN_IF_ERROR(
      CheckPositive(path, "learning_rate", schedule.learning_rate()));
  // LearningRate divides by the steps of each decay, so none may be 0.
  switch (schedule.decay_case()) {
    case Schedule::kStep:
      WEIR_RETURN_IF_ERROR(
          CheckSteps(path + ".step", "every", schedule.step().every()));
      return CheckPositive(path + ".step", "factor", schedule.step().factor());
    case Schedule::kExponential:
      WEIR_RETURN_IF_ERROR(CheckSteps(path + ".exponential", "every",
                                      schedule.exponential().every()));
      return CheckPositive(path + ".exponential", "factor",
                           schedule.exponential().factor());
    case Schedule::kCosine:
      WEIR_RETURN_IF_ERROR(
          CheckSteps(path + ".cosine", "steps", schedule.cosine().steps()));
      return CheckUnitClosed(path + ".cosine", "final_fraction",
                             schedule.cosine().final_fraction());
    case Schedule::DECAY_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

}  // namespace weir
