// From "every shard answered" to "every shard holds this job".
//
// Place: the first part of JobState; ends with a Declaration that every shard
// holds (JobSource::held), or with an error.
//
//   new       first worker -> Declare -> [initial values] -> ready
//   resume    newest checkpoint -> [first worker] -> Restore -> ready
//   adopt     GetStatus -> compare -> ready: the chief was restarted
//
// The job source says whether a worker must come first, and whether the chief
// or worker 0 assigns the initial values.
//
// Invariants
//   I1. Every Declare and every Restore has a history id of its own; a chief
//       sends each shard at most one of them.
//   I2. An ACTIVE shard is never sent a Declare.
//   I3. Of two chiefs that load the shards at one moment one goes on, or both
//       start again: a chief that has got some of them never gives way.
// Threads: compatible.
// Owns/borrows: borrows the facts, and appends to their actions.
// Errors: INVALID_ARGUMENT     the JobSpec differs from the one that the shards
//                              or the checkpoint were made with, or a
//                              checkpoint is in the way; names the difference.
//         FAILED_PRECONDITION  a lost or foreign shard; names it.
//         DATA_LOSS            a damaged checkpoint; names it.
//         and what a shard answered; names the shard.
#ifndef SERVER_CHIEF_START_START_SEQUENCE_H_
#define SERVER_CHIEF_START_START_SEQUENCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ps.pb.h"
#include "server/chief/state/job_facts.h"

namespace weir {

class StartSequence {
 public:
  enum class State {
    kHello,     // the caller collects Hellos
    kFinding,   // a checkpoint
    kNeedsJob,  // a worker is to say what the job is
    kDeclaring,
    kAssigning,
    kRestoring,
    kReadingStatus,
    kReady,
    kFailed,
  };

  explicit StartSequence(JobFacts* facts) : facts_(*facts) {}

  State state() const { return state_; }
  const absl::Status& status() const { return status_; }  // kFailed
  // kFailed: a shard is lost, and no checkpoint will ever complete the others.
  // Whoever starts tasks again resumes, so the others are to end, too.
  bool begins_anew() const { return begins_anew_; }
  std::string Describe() const;  // what it waits for, for messages
  bool adopted() const { return adopted_; }
  bool restored() const { return restored_; }
  // A stop is to wait: the shards hold, or may yet say that they hold, what no
  // checkpoint has.
  bool ShardsMayHoldWork() const;
  // The incarnation of each shard, 0 where no answer named one.
  // REQUIRES: kReady.
  const std::vector<uint64_t>& incarnations() const { return incarnations_; }

  // Call when every shard has answered its Hello.
  void OnHellos(const std::vector<HelloReply>& hellos);
  void OnCheckpointFound(
      const absl::StatusOr<std::optional<FoundCheckpoint>>& found);
  // kNeedsJob: loads the shards if the job source knows with what by now.
  void Load();
  // kAssigning: worker 0 has assigned the values.
  void OnValuesAssigned();
  // The shard's answer to Declare or Restore.
  void OnDeclared(int shard, const absl::StatusOr<DeclareReply>& reply);
  void OnAssigned(int shard, const absl::Status& status);
  void OnStatus(int shard, const absl::StatusOr<PsStatus>& reply);

 private:
  void Fail(absl::Status status);
  // Goes on, or fails, where no checkpoint was found.
  void StartWithoutCheckpoint();
  // The shards are to hold `declaration`; INVALID_ARGUMENT if no layout fits.
  absl::Status Hold(const Declaration& declaration);
  void DeclareShards();
  void RestoreShards();
  void Adopt();
  int shard_count() const { return facts_.tracker.count(); }
  // The same for Declare and Restore, where another chief may have been faster.
  bool LastLoaded(int shard, const absl::Status& status);
  // Records an answer of `shard`, good or not. Returns true if it was the last
  // one and all were good.
  bool LastAnswer(int shard, const absl::Status& status);

  JobFacts& facts_;
  State state_ = State::kHello;
  absl::Status status_;
  absl::Status lost_;  // not OK: a shard is lost, so a restore is needed
  std::optional<FoundCheckpoint> found_;  // to continue from
  bool adopted_ = false;
  bool restored_ = false;
  bool begins_anew_ = false;
  std::vector<bool> answered_;
  std::vector<absl::Status> taken_;  // by shard, see LastLoaded; or OK
  std::vector<uint64_t> incarnations_;
  std::vector<uint64_t> seen_histories_;  // of the first Hellos; 0: none
  std::vector<PsStatus> statuses_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_START_START_SEQUENCE_H_
