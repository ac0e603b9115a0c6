// What a simulated world tells of itself.
#ifndef SIM_WORLD_H_
#define SIM_WORLD_H_

#include <cstdint>
#include <string>

#include "common/threads/scheduler.h"

namespace weir::sim {

struct WorldCounts {
  uint64_t contributions = 0;
  uint64_t pushes = 0;      // of blocks, as the shards count them
  uint64_t duplicates = 0;  // of these, repeated ones
  uint64_t checkpoints = 0;
  uint64_t messages = 0;
  uint64_t resets = 0;
  uint64_t kills = 0;
  uint64_t stops = 0;  // SIGTERM
  uint64_t parts = 0;
  uint64_t pauses = 0;   // SIGSTOP
  uint64_t seconds = 0;  // processes beside the one that has the place
  uint64_t wall_steps = 0;
  uint64_t slow = 0;   // hosts with too much to do
  uint64_t power = 0;  // losses of power
  uint64_t store = 0;  // it was full or slow, or failed, for a while
  uint64_t rot = 0;    // bits of checkpoints that changed
  // Calls of the store that did not say what they did.
  uint64_t unavailable = 0;

  uint64_t faults() const {
    return resets + kills + stops + parts + pauses + seconds + wall_steps +
           slow + power + store + rot + unavailable;
  }
  WorldCounts& operator+=(const WorldCounts& other) {
    contributions += other.contributions;
    pushes += other.pushes;
    duplicates += other.duplicates;
    checkpoints += other.checkpoints;
    messages += other.messages;
    resets += other.resets;
    kills += other.kills;
    stops += other.stops;
    parts += other.parts;
    pauses += other.pauses;
    seconds += other.seconds;
    wall_steps += other.wall_steps;
    slow += other.slow;
    power += other.power;
    store += other.store;
    rot += other.rot;
    unavailable += other.unavailable;
    return *this;
  }
};

// What can be left out of a world, to see whether it still fails: a set of
// bits. Of a job, bits 0 to 29 are its faults in their order.
using LeftOut = uint32_t;
inline constexpr LeftOut kLeaveKills = 1;  // of a ledger
inline constexpr LeftOut kLeaveParts = 2;  // of a ledger
inline constexpr LeftOut kLeaveResets = LeftOut{1} << 30;
inline constexpr LeftOut kLeaveStoreFaults = LeftOut{1} << 31;  // of a job

struct WorldResult {
  std::string broken;         // what does not hold; empty: all holds
  bool lost = false;          // no checkpoint is left that has not rotted
  std::string job;            // what the seed drew, in words
  LeftOut can_leave_out = 0;  // what there is
  Outcome outcome;
  WorldCounts counts;
};

}  // namespace weir::sim

#endif  // SIM_WORLD_H_
