// Checks a schedule; proto/job/learning_rate.h evaluates it.
//
// Errors: INVALID_ARGUMENT  names the field's path, the value and its range.
#ifndef SERVER_PS_OPTIMIZER_SCHEDULE_H_
#define SERVER_PS_OPTIMIZER_SCHEDULE_H_

#include <string>

#include "absl/status/status.h"
#include "proto/job/learning_rate.h"
#include "proto/job_spec.pb.h"

namespace weir {

// Returns OK when LearningRate may be called. `path` is where `schedule` stands
// in the JobSpec, for messages.
absl::Status ValidateSchedule(const Schedule& schedule,
                              const std::string& path);

}  // namespace weir

#endif  // SERVER_PS_OPTIMIZER_SCHEDULE_H_
