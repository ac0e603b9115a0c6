// A ledger of every contribution, in a simulated world of stores and clients.
//
// Place: what the swarm runs. Each slot's contribution number n has a gradient
// of its own, and plain SGD with rate 1 adds it up in whole numbers. So the
// values at the end tell whether one was lost or counted twice.
//
// The seed draws the job (mode, shards, slots, sizes of blocks), how late and
// how often connections break, how often workers are killed and started again,
// and how often two tasks cannot hear each other.
//
// Threads: one world at a time in a process.
#ifndef SIM_LEDGER_H_
#define SIM_LEDGER_H_

#include <cstdint>

#include "sim/world.h"

namespace weir::sim {

WorldResult RunLedger(uint64_t seed, LeftOut left_out = 0);

}  // namespace weir::sim

#endif  // SIM_LEDGER_H_
