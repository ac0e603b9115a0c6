// The tasks of a simulated job, whoever starts them again, and their troubles.
//
// Place: sim/job.h runs one by the seed's plan, and one without troubles beside
// it. What has to hold is in sim/health_checks.h and sim/checkpoint_checks.h.
//
// Threads: one world at a time in a process.
#ifndef SIM_CLUSTER_H_
#define SIM_CLUSTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "sim/job_plan.h"
#include "sim/world.h"

namespace weir::sim {

// Runs a job in a world of its own until it has ended, or something does not
// hold. Returns what CheckpointChecks::ReadLast reads; empty if something is
// broken.
std::vector<float> RunCluster(uint64_t seed, const JobPlan& plan,
                              const std::string& data_dir, WorldResult* result);

}  // namespace weir::sim

#endif  // SIM_CLUSTER_H_
