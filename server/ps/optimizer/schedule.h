// Learning rate as a function of the optimizer's step count.
//
// Place: evaluated on the ps for each segment and step, in double.
//
//   rate(t) = learning_rate * warmup(t) * decay(t),   t = 0, 1, ...
//   warmup  = min(1, (t + 1) / warmup_steps)
//   decay   = 1
//           | factor^floor(t / every)                         step
//           | factor^(t / every)                              exponential
//           | f + (1 - f) (1 + cos(pi min(t, n) / n)) / 2     cosine
// Errors: INVALID_ARGUMENT  names the field's path, the value and its range.
// Source: cosine: Loshchilov and Hutter, ICLR 2017, eq. 5, without restarts.
#ifndef SERVER_PS_OPTIMIZER_SCHEDULE_H_
#define SERVER_PS_OPTIMIZER_SCHEDULE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/job_spec.pb.h"

namespace weir {

// OK if LearningRate may be called. `path` is where `schedule` stands in the
// JobSpec, for messages.
absl::Status ValidateSchedule(const Schedule& schedule,
                              const std::string& path);

// REQUIRES: ValidateSchedule(schedule, ...) is OK.
double LearningRate(const Schedule& schedule, uint64_t step);

}  // namespace weir

#endif  // SERVER_PS_OPTIMIZER_SCHEDULE_H_
