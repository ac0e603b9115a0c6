// Jobs with the ps in the loop, for gpu_bench.
//
// Threads: compatible.
// Errors: UNAVAILABLE  a job did not end well; the message names its log.
#ifndef BENCH_GPU_GPU_JOB_H_
#define BENCH_GPU_GPU_JOB_H_

#include "absl/status/statusor.h"
#include "bench/gpu/gpu_modes.h"
#include "nlohmann/json.hpp"

namespace weir {

// Trains each model on generated images, async and sync, with one ps and one
// worker through `weir train`; prints where the step's time went and returns
// the jobs' phases.
absl::StatusOr<nlohmann::json> MeasureJobs(const GpuFlags& flags);

}  // namespace weir

#endif  // BENCH_GPU_GPU_JOB_H_
