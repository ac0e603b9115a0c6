// What a seed draws for a simulated job: its shape, and its troubles.
//
// Threads: for fibres.
#ifndef SIM_PLAN_H_
#define SIM_PLAN_H_

#include <cstdint>
#include <initializer_list>
#include <string>

#include "common/threads/scheduler.h"
#include "sim/network.h"
#include "sim/world.h"

namespace weir::sim {

enum class Mode { kAsync, kSync, kStaleness };

// As a Declaration's `update` has it, and a job's; sync with so many
// contributions in a step.
std::string UpdateOf(Mode mode, uint64_t in_step);

template <typename T>
T Pick(std::initializer_list<T> of) {
  return *(of.begin() + RandomBelow(of.size()));
}

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

  std::string Update() const { return UpdateOf(mode, in_step); }
  std::string Words() const;
  // The same job without some of its faults.
  Plan Without(LeftOut left_out) const;
  LeftOut CanLeaveOut() const;
};

// Asks the world for random numbers.
Plan DrawPlan();

}  // namespace weir::sim

#endif  // SIM_PLAN_H_
