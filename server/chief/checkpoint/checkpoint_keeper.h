// A job's checkpoints: when one begins, who must hold for it, and what its
// outcome means.
//
// Place: a part of JobState, which passes on the answers of shards and disk.
// The course of one checkpoint is checkpoint_cycle.h's. Changes `checkpoint`
// and `checkpoint_step` of JobFacts.
//
// Invariants
//   I1. Workers that were told to hold are told to go on, unless the job ends:
//       one that held for the checkpoint of a stop does nothing after it, since
//       that would be lost.
//   I2. A checkpoint that the job needs, its last one or that of a stop, is
//       tried until it is committed. What was trained is in the memory of
//       healthy shards and nowhere else, and a full disk, a share that is away
//       or keys that are refused can be mended. Any other one is left out until
//       the next is due.
// Threads: compatible.
// Owns/borrows: borrows facts and absence.
// Errors: CANCELLED          a stop could not freeze the shards in time.
//         PERMISSION_DENIED  another chief goes on with the job.
//         and those of JobSource::FillManifest.
#ifndef SERVER_CHIEF_CHECKPOINT_CHECKPOINT_KEEPER_H_
#define SERVER_CHIEF_CHECKPOINT_CHECKPOINT_KEEPER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/chief/checkpoint/checkpoint_cycle.h"
#include "server/chief/checkpoint/checkpoint_schedule.h"
#include "server/chief/state/absence.h"
#include "server/chief/state/job_facts.h"

namespace weir {

class CheckpointKeeper {
 public:
  CheckpointKeeper(JobFacts* facts, Absence* absence);

  // Training begins at the facts' step.
  void BeginTraining();
  // A needed checkpoint need not wait out the pause that an earlier, less
  // urgent one earned.
  void Hurry();

  // Takes the outcome of a checkpoint that has ended, if there is one.
  absl::Status TakeOutcome();
  // Runs everything that is possible now. REQUIRES: TRAINING or LAST.
  absl::Status Advance();
  // True if the checkpoint that ends the phase is there: the last one in LAST,
  // that of a stop in TRAINING.
  bool finished() const { return finished_; }
  bool hold_sent() const { return hold_sent_; }

  // About every 50 ms, in training: measures the speed, and says what a slow
  // checkpoint waits for.
  void Tick();
  // True while a checkpoint lets nobody work until it is frozen. Says so when
  // that takes long.
  bool KeepsWorkersWaiting();

  // The checkpoint under way. It takes the answers of shards and disk.
  CheckpointCycle& cycle() { return cycle_; }
  const CheckpointCycle& cycle() const { return cycle_; }

 private:
  bool stopping() const { return facts_.stop.has_value(); }
  bool training() const { return facts_.phase == JobFacts::Phase::kTraining; }
  // A checkpoint that the job needs is under way or to come (I2).
  bool wanted() const { return stopping() || !training(); }
  // The step at which a checkpoint is due, if one is.
  std::optional<uint64_t> Due();
  void Begin();
  bool WaitsForTornWorker();
  // Reads fresh marks after a hold.
  void CheckMarks();
  // How long a hold waits for workers, in seconds.
  double HoldWait() const;
  void HoldOrRelease();
  // Sync: gives up a checkpoint whose version will not come, or not in time.
  void DropHopelessVersion();

  void OnTorn();
  void LetWork();
  void OnPassed();
  void OnCommittedOutcome(const CheckpointCycle::Outcome& outcome);
  absl::Status OnFailed(const CheckpointCycle::Outcome& outcome);

  JobFacts& facts_;
  Absence& absence_;
  CheckpointCycle cycle_;
  std::optional<CheckpointSchedule> schedule_;
  std::vector<uint64_t> marks_tickets_;
  bool finished_ = false;
  bool hold_sent_ = false;
  int64_t hold_ns_ = 0;                  // when it was sent
  int64_t held_ns_ = 0;                  // how long the last one took
  int64_t torn_since_ns_ = 0;            // 0: not torn
  int64_t retry_ns_ = 0;                 // not before
  int tries_failed_ = 0;                 // in a row
  std::optional<uint64_t> passed_step_;  // the newest that was refused
};

}  // namespace weir

#endif  // SERVER_CHIEF_CHECKPOINT_CHECKPOINT_KEEPER_H_
