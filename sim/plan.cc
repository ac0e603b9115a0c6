#include "sim/plan.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/threads/scheduler.h"

namespace weir::sim {

using std::chrono::milliseconds;

Plan DrawPlan() {
  Plan plan;
  plan.mode = Pick({Mode::kAsync, Mode::kSync, Mode::kStaleness});
  plan.shards = 1 + static_cast<int>(RandomBelow(3));
  plan.slots = Pick({1, 2, 4});
  plan.contributions = 4 + RandomBelow(20);
  plan.in_step =
      static_cast<uint64_t>(plan.slots) * static_cast<uint64_t>(Pick({1, 2}));
  plan.contributions -= plan.contributions % 2;  // whole steps
  plan.block_elements = Pick({16, 32, 64});
  plan.variables = 1 + static_cast<int>(RandomBelow(4));
  plan.ids = Pick({0, 5, 40});
  plan.faults.delay_min = Pick({milliseconds(0), milliseconds(1)});
  plan.faults.delay_max =
      plan.faults.delay_min +
      Pick({milliseconds(1), milliseconds(20), milliseconds(500)});
  plan.faults.bytes_per_second = Pick<uint64_t>({0, 0, 20'000, 2'000});
  // More where messages are slow, and a shard would at times not be reached for
  // as long as makes it a lost one.
  const bool slow = plan.faults.delay_max >= milliseconds(500);
  plan.faults.reset_one_in = Pick<uint64_t>({0, 1000, 100, slow ? 50U : 20U});
  plan.kills = Pick({0, 0, 1, 2, 5});
  plan.parts = Pick({0, 0, 1, 3});
  return plan;
}

Plan Plan::Without(LeftOut left_out) const {
  Plan plan = *this;
  if ((left_out & kLeaveKills) != 0) {
    plan.kills = 0;
  }
  if ((left_out & kLeaveParts) != 0) {
    plan.parts = 0;
  }
  if ((left_out & kLeaveResets) != 0) {
    plan.faults.reset_one_in = 0;
  }
  return plan;
}

LeftOut Plan::CanLeaveOut() const {
  return (kills > 0 ? kLeaveKills : 0) | (parts > 0 ? kLeaveParts : 0) |
         (faults.reset_one_in > 0 ? kLeaveResets : 0);
}

std::string UpdateOf(Mode mode, uint64_t in_step) {
  switch (mode) {
    case Mode::kAsync:
      return "async {}";
    case Mode::kSync:
      return absl::StrCat("sync { contributions: ", in_step, " }");
    case Mode::kStaleness:
      return "bounded_staleness { bound: 2 }";
  }
  return "";
}

std::string Plan::Words() const {
  return absl::StrCat(
      Update(), ", ", shards, " shards, ", slots, " slots, ", contributions,
      " contributions each, ", block_elements, " elements a block, ", variables,
      " variables, ", ids, " rows, messages take up to ",
      faults.delay_max / std::chrono::microseconds(1), " us, ",
      faults.bytes_per_second, " bytes a second, one in ", faults.reset_one_in,
      " breaks its connection, ", kills, " kills, ", parts, " parted");
}

}  // namespace weir::sim
