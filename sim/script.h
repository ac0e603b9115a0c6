// The program of a user in a simulated job: it declares two tensors, pushes so
// many gradients, and ends.
//
// Place: each worker of a job of scripts runs one. Session is the product's
// own.
//
// Gradients are whole numbers that differ from push to push, so in async the
// values at the end, which floats hold exactly, are the sum of all of them in
// any order.
//
// Threads: for fibres.
#ifndef SIM_SCRIPT_H_
#define SIM_SCRIPT_H_

#include "absl/status/status.h"
#include "sim/tasks.h"

namespace weir::sim {

// Returns when and why the program of `rank` ends.
absl::Status RunScript(const JobPlace& place, int rank, ProcessRun* run);

}  // namespace weir::sim

#endif  // SIM_SCRIPT_H_
