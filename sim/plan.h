// What a seed draws for a simulated job: its shape, and its troubles.
//
// Threads: for fibres.
#ifndef SIM_PLAN_H_
#define SIM_PLAN_H_

#include <cstdint>
#include <string>

#include "sim/network.h"

namespace weir::sim {

enum class Mode { kAsync, kSync, kStaleness };

struct Plan {
  Mode mode = Mode::kAsync;
  int shards = 1;
  int slots = 1;
  uint64_t contributions = 0;  // of each slot
  uint64_t in_step = 1;        // sync: contributions of a step
  int block_elements = 16;
  int variables = 1;
  int ids = 0;  // of the table; 0: there is none
  Faults faults;
  int kills = 0;
  int parts = 0;

  // As a Declaration's `update` has it.
  std::string Update() const;
  std::string Words() const;
};

// Asks the world for random numbers.
Plan DrawPlan();

}  // namespace weir::sim

#endif  // SIM_PLAN_H_
