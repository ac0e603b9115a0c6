// A whole job in a simulated world: ps, a chief, workers that train a network,
// checkpoints in an object store, and whoever starts a task again.
//
// Place: what the swarm runs beside the ledger. Everything between the network,
// the store and the restart rules is the product's own: Store, ChiefRunner,
// WorkerTask, Supervisor.
//
// The seed draws the job, the faults of network and store, and when which task
// is killed or told to stop. A second fault often follows soon, and in half of
// the worlds the trouble is at the end of the job.
//
// What has to hold
//   The job ends well within hours of the world's time, and so does every task.
//   No task ends with a code that says that no start can mend it.
//   Tasks end, and get on, as their troubles allow: sim/health_checks.h.
//   The newest committed checkpoint is whole, and never older than it was:
//   sim/checkpoint_checks.h. A chief restores none that was older when it
//   started.
//   The last one holds each contribution of the job, once: its values and rows
//   are those of the job alone, with one ps and one worker. In sync their bits
//   are; else the orders of sums differ, and the lack of one contribution
//   would show.
//
// Threads: one world at a time in a process.
#ifndef SIM_JOB_H_
#define SIM_JOB_H_

#include <cstdint>
#include <string>

#include "sim/world.h"

namespace weir::sim {

// Writes what jobs train on into a directory, which exists. False: it cannot.
bool WriteJobData(const std::string& directory);

// `data_dir`: where WriteJobData has written.
WorldResult RunJob(uint64_t seed, const std::string& data_dir,
                   LeftOut left_out = 0);

}  // namespace weir::sim

#endif  // SIM_JOB_H_
