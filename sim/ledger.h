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
#include <string>

#include "common/threads/scheduler.h"

namespace weir::sim {

struct LedgerCounts {
  uint64_t contributions = 0;
  uint64_t pushes = 0;      // of blocks, as the shards count them
  uint64_t duplicates = 0;  // of these, repeated ones
  uint64_t messages = 0;
  uint64_t resets = 0;
  uint64_t kills = 0;
  uint64_t parts = 0;

  LedgerCounts& operator+=(const LedgerCounts& other) {
    contributions += other.contributions;
    pushes += other.pushes;
    duplicates += other.duplicates;
    messages += other.messages;
    resets += other.resets;
    kills += other.kills;
    parts += other.parts;
    return *this;
  }
};

struct LedgerResult {
  std::string broken;  // what does not hold; empty: all holds
  std::string job;     // what the seed drew, in words
  Outcome outcome;
  LedgerCounts counts;
};

LedgerResult RunLedger(uint64_t seed);

}  // namespace weir::sim

#endif  // SIM_LEDGER_H_
