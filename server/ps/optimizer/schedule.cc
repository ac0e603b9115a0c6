#include "server/ps/optimizer/schedule.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/status.h"
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

double LearningRate(const Schedule& schedule, uint64_t step) {
  const double t = static_cast<double>(step);
  double rate = schedule.learning_rate();
  switch (schedule.decay_case()) {
    case Schedule::kStep:
      rate *= std::pow(schedule.step().factor(),
                       static_cast<double>(step / schedule.step().every()));
      break;
    case Schedule::kExponential:
      rate *= std::pow(schedule.exponential().factor(),
                       t / static_cast<double>(schedule.exponential().every()));
      break;
    case Schedule::kCosine: {
      const double last = static_cast<double>(schedule.cosine().steps());
      const double floor = schedule.cosine().final_fraction();
      const double wave = (1 + std::cos(M_PI * (std::min(t, last) / last))) / 2;
      rate *= floor + (1 - floor) * wave;
      break;
    }
    case Schedule::DECAY_NOT_SET:
      break;
  }
  if (step < schedule.warmup_steps()) {
    rate *= (t + 1) / static_cast<double>(schedule.warmup_steps());
  }
  // A factor above 1 may run away; the rules want a finite float.
  return std::min(rate, 3e38);
}

}  // namespace weir
