// A round of SetSlots: every shard hears which process has each slot.
//
// Place: a part of JobState. The Roster says when a round is due, and what is
// in it; this makes the calls and sees whether every shard took them.
//
// A shard that the chief does not reach keeps the round open: workers may reach
// it and train on, and only the ShardTracker says that it is lost.
//
// Invariants
//   I1. A round ends when every shard has taken it and answered a Hello that
//       was asked for behind it, so that marks are read which no older
//       generation can move any more (I2 of the Roster).
//   I2. A shard that did not take the round is called again when it has
//       answered a Hello, and not before.
// Threads: compatible.
// Owns/borrows: borrows the facts.
#ifndef SERVER_CHIEF_STATE_SLOT_ROUND_H_
#define SERVER_CHIEF_STATE_SLOT_ROUND_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "server/chief/state/job_facts.h"

namespace weir {

class SlotRound {
 public:
  explicit SlotRound(JobFacts* facts) : facts_(*facts) {}

  // Begins a round that is due, and ends one that every shard has taken.
  void Advance();
  // The shard has answered a Hello.
  void OnHello(int shard);
  // Takes the answer to SetSlots. Returns the error that ends the job, if it is
  // one.
  absl::Status OnSet(int shard, const absl::Status& status);

 private:
  enum class Call { kUnderWay, kTaken, kUnreached };

  void Send(int shard);

  JobFacts& facts_;
  SetSlotsRequest request_;
  // By shard; empty before the first round.
  std::vector<Call> calls_;
  std::vector<uint64_t> tickets_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_STATE_SLOT_ROUND_H_
