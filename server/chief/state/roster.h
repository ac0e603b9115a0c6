// Who has which slot: registrations, generations, heartbeats.
//
// Place: inside JobState, which sends SetSlots when a round is due and answers
// Register from here.
//
// Terms
//   round   SetSlots on every shard, then a Hello to each. After it, older
//           generations are fenced off, so their marks are final.
//   stream  one Heartbeat call. A newer one of the same grant replaces it.
//   substitute  a worker of another slot that was asked to finish what the
//           worker of this one seems to have left. That one may live, and was
//           only not heard.
//
// Invariants
//   I1. A generation of a slot is granted to one process only, and that of a
//       new grant is larger than any that a shard has seen.
//   I2. A grant is answered only after a round that carried its generation.
//   I3. A process that was replaced never gets a grant again. A chief that was
//       restarted keeps this too, and so does one that has forgotten the
//       process among too many others: the generation that such a process holds
//       is older than the one that the shards know. A substitute replaces
//       nobody: the worker of the slot gets it back, with a new generation.
// Threads: compatible.
// Errors: PERMISSION_DENIED  a newer process has the slot.
#ifndef SERVER_CHIEF_STATE_ROSTER_H_
#define SERVER_CHIEF_STATE_ROSTER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/chief.pb.h"
#include "proto/ps.pb.h"

namespace weir {

// Whether a worker asks for the slot of another one because it was asked to.
bool IsSubstitute(const RegisterRequest& request);

class Roster {
 public:
  struct Worker {
    enum class State { kAbsent, kWanted, kInRound, kGranted };
    State state = State::kAbsent;
    uint64_t process = 0;
    std::string host;
    uint32_t generation = 0;      // largest known
    uint64_t stream = 0;          // 0: not connected
    int64_t heard_ns = 0;         // 0: this process has sent no heartbeat
    int64_t heard_before_ns = 0;  // of the heartbeat before the newest
    int64_t absent_since_ns = 0;
    uint64_t granted_sequence = 0;  // where its grant begins
    uint64_t next_sequence = 0;     // below it all is acknowledged everywhere
    // Contributions that had their ContributionReport, or never will.
    uint64_t reported = 0;
    bool holding = false;
    bool out_of_work = false;
    bool retired = false;
    bool asked = false;       // it registered, even before there was a grant
    bool told = false;        // it knows that it ends
    bool substitute = false;  // the process is one
    uint64_t message_number = 0;  // of its newest reports
    uint64_t bytes_moved = 0;     // the most that any of its processes told
    // Processes that had the slot before, the newest last; kReplacedMax.
    std::deque<uint64_t> replaced;

    bool connected() const { return stream != 0; }
  };

  Roster(int count, int64_t now_ns);

  int count() const { return static_cast<int>(workers_.size()); }
  const Worker& worker(int slot) const { return workers_[slot]; }
  Worker* mutable_worker(int slot) { return &workers_[slot]; }

  // Sets the largest generation that the shards have seen. Call at the start.
  void SetGeneration(int slot, uint32_t generation);

  // Returns true if the slot is granted, and false if a round must come first.
  // `ended` gets the stream of the process that this one replaces, or 0.
  // `same_history` says whether the grant that the process holds is of the
  // history that the shards have. REQUIRES: the rank is one of the job's.
  absl::StatusOr<bool> Register(const RegisterRequest& request,
                                bool same_history, uint64_t next_sequence,
                                int64_t now_ns, uint64_t* ended);

  // Asks for a round that says whether `slot` is retired.
  void SetRetired(int slot, bool retired);
  bool NeedsRound() const { return dirty_ && !in_round_; }
  bool in_round() const { return in_round_; }
  // Begins a round; returns all slots, for SetSlots.
  std::vector<SetSlotsRequest::Slot> BeginRound();
  // Ends the round that every shard took. `next_sequence` gives the smallest
  // mark of a slot, read after it. Returns how many contributions nobody will
  // report any more.
  uint64_t EndRound(const std::function<uint64_t(int)>& next_sequence,
                    int64_t now_ns);

  // Checks the grant that a heartbeat names and takes what it says of its
  // worker. `fresh` becomes true on a stream's first message; `ended` gets the
  // stream that this one replaces, or 0; `repeated` is how many of the first
  // reports are of contributions that count as reported. A chief that was
  // restarted takes those from the marks.
  absl::Status OnProgress(uint64_t stream, const Progress& progress,
                          int64_t now_ns, bool* fresh, uint64_t* ended,
                          int* repeated);
  // Returns the slot that lost its stream, or -1.
  int OnStreamLost(uint64_t stream, int64_t now_ns);
  // Drops workers that were silent for `lost_after_ns`; returns their streams.
  std::vector<uint64_t> DropSilent(int64_t lost_after_ns, int64_t now_ns);

  uint64_t ContributionsDone() const;  // acknowledged everywhere
  // True if every connected worker that has work left holds.
  bool AllHold() const;
  bool AnyConnected() const;
  // True if every worker that has or wants a slot of this history knows that
  // the job ends.
  bool AllTold() const;
  // True if every worker that has a slot has said that it has no work left, or
  // has retired its slot and gone.
  bool AllOutOfWork() const;
  std::vector<uint64_t> streams() const;  // of connected workers

 private:
  void Disconnect(Worker* worker, int64_t now_ns);

  std::vector<Worker> workers_;
  bool dirty_ = false;  // the shards do not know of the newest change
  bool in_round_ = false;
};

}  // namespace weir

#endif  // SERVER_CHIEF_STATE_ROSTER_H_
