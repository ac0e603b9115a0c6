// The clocks of simulated hosts: each process has its own, which are ahead of
// the world's time by a constant, and all wall clocks may be set.
//
// Place: under common/base/clock.h in a build with --config=sim.
//
// Threads: for fibres.
#ifndef COMMON_THREADS_HOST_CLOCKS_H_
#define COMMON_THREADS_HOST_CLOCKS_H_

#include <chrono>

namespace weir::sim {

// From now on the clocks of `process` are ahead by so much; before that by 0.
void SetHostClocks(int process, std::chrono::nanoseconds monotonic,
                   std::chrono::nanoseconds wall);
// Sets every wall clock forward or back by so much.
void StepWall(std::chrono::nanoseconds by);

// As the process of the fibre that calls reads them; the second one since the
// Unix epoch.
std::chrono::nanoseconds MonotonicTime();
std::chrono::nanoseconds WallTime();

// A new world begins.
void ResetHostClocks();

}  // namespace weir::sim

#endif  // COMMON_THREADS_HOST_CLOCKS_H_
