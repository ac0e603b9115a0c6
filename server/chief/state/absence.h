// Workers that are away or stand still: who waits for them, and who finishes
// what they left.
//
// Place: a part of JobState; checkpoint_keeper.cc asks it what a checkpoint may
// still wait for. Reads everything of JobFacts; changes `progress_ns` and which
// slots are retired.
//
// Terms
//   away  has work left and is not connected.
//   torn  ended inside a contribution: blocks have it, and others lack it
//         (slot_marks.h).
//
// Invariants
//   I1. Each worker is asked once to take a slot that is torn, and no more than
//       kTakesMax of them: one that did not take it may be stuck itself.
// Threads: compatible.
// Owns/borrows: borrows the facts.
#ifndef SERVER_CHIEF_STATE_ABSENCE_H_
#define SERVER_CHIEF_STATE_ABSENCE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/chief/state/job_facts.h"

namespace weir {

class Absence {
 public:
  // A version that does not come is given up after this.
  static constexpr double kVersionWaitSeconds = 5.0;

  explicit Absence(JobFacts* facts) : facts_(*facts) {}

  std::vector<int> Away() const;  // slots
  // Sync: true if no version can come before somebody joins.
  bool StandsStill() const;
  // The first slot whose worker is not connected and left a contribution torn.
  std::optional<int> Torn() const;
  // "; worker 1 (host) ended inside contribution 7 ...", or "" if none did.
  std::string DescribeTorn() const;

  // Whether it asks for a slot that it was to take, and that one's own worker
  // has come back before it was done with its contribution.
  bool IsTooLateToTake(const RegisterRequest& request) const;
  // In a stop: asks a worker that lives to take `slot`, which is torn. Returns
  // true while that worker, one that was asked before, or the slot's own may
  // yet come, and false if nobody is left to ask.
  bool AskToTake(int slot);
  // In a stop: returns true while a worker may yet finish what is torn. If none
  // will, the slots of those who are away are retired, so that the blocks that
  // are behind publish the next version without that contribution: the state
  // of those that are ahead cannot go back. Those of programs of the SDK are
  // not: they may yet come back.
  bool FinishTorn();

  // Says who keeps the others waiting. `held` says that workers were told to
  // hold, `kept_waiting` that it is a checkpoint that keeps them waiting.
  // UNAVAILABLE if there was no progress at all for too long. In a job that had
  // finished before, the slots of those who are away are retired then: programs
  // that ended well are not started again.
  absl::Status Watch(bool held, bool kept_waiting);

 private:
  static constexpr size_t kTakesMax = 3;

  // Whether the worker of this slot is connected, or is about to be.
  bool IsThere(int slot) const;
  void WatchShards();
  // Says which worker is connected and does not get on.
  void WatchStuck(bool held);

  JobFacts& facts_;
  int64_t take_ns_ = 0;               // when a worker was asked to take a slot
  std::set<uint64_t> asked_to_take_;  // streams
  // By slot: the contribution that it is at, and since when.
  std::vector<std::pair<uint64_t, int64_t>> seen_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_STATE_ABSENCE_H_
