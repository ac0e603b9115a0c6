// The learning rate as a function of the optimizer's step count.
//
// Place: a ps computes it for each segment and step, in double; the chief shows
// it in the curve.
//
//   rate(t) = learning_rate * warmup(t) * decay(t),   t = 0, 1, ...
//   warmup  = min(1, (t + 1) / warmup_steps)
//   decay   = 1
//           | factor^floor(t / every)                         step
//           | factor^(t / every)                              exponential
//           | f + (1 - f) (1 + cos(pi min(t, n) / n)) / 2     cosine
// Source: the cosine is Loshchilov and Hutter, ICLR 2017, eq. 5, without
//         restarts.
#ifndef PROTO_JOB_LEARNING_RATE_H_
#define PROTO_JOB_LEARNING_RATE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/job_spec.pb.h"

namespace weir {

// Checks that the schedule has a learning rate, which it may leave out where
// another one stands in. `path` is where it stands, for the message.
absl::Status CheckLearningRate(const Schedule& schedule,
                               const std::string& path);

// REQUIRES: CheckFields and CheckLearningRate were OK.
double LearningRate(const Schedule& schedule, uint64_t step);

}  // namespace weir

#endif  // PROTO_JOB_LEARNING_RATE_H_
