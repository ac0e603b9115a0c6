#include "proto/job/learning_rate.h"

#include <algorithm>
#include <cmath>

#include "proto/job/field_rules.h"

namespace weir {

absl::Status CheckLearningRate(const Schedule& schedule,
                               const std::string& path) {
  if (schedule.learning_rate() > 0) {
    return absl::OkStatus();
  }
  return InvalidField(path + ".learning_rate", schedule.learning_rate(),
                      " is not > 0");
}

double LearningRate(const Schedule& schedule, uint64_t step) {
  const double t = static_cast<double>(step);
  double rate = schedule.learning_rate();
  switch (schedule.decay_case()) {
    case Schedule::kStep:
      rate *= std::pow(
          schedule.step().factor(),
          std::floor(t / static_cast<double>(schedule.step().every())));
      break;
    case Schedule::kExponential:
      rate *= std::pow(schedule.exponential().factor(),
                       t / static_cast<double>(schedule.exponential().every()));
      break;
    case Schedule::kCosine: {
      // From t = n on the cosine stays at its end, final_fraction.
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
  // A factor above 1 may grow without end, and the optimizers need a rate that
  // is finite as a float.
  return std::min(rate, 3e38);
}

}  // namespace weir
