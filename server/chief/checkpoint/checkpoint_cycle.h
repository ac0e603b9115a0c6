// One checkpoint from its trigger to its manifest.
//
// Place: inside JobState, which tells it what workers and shards answered and
// carries on with its outcome.
//
//   sync              prepare -> freeze at version v -> write -> commit
//   sync, at a stop   hold -> marks -> the same, at the newest whole version
//   async and SSP     hold -> marks equal? -> prepare -> freeze -> release
//                     -> write -> commit
//
// Terms
//   torn   a contribution is applied on some blocks and not on others, because
//          its worker died or did not hold in time. What was frozen is thrown
//          away then, and the next try comes when the replacement has finished
//          the contribution.
//
// Invariants
//   I1. A checkpoint of async is committed only if every shard froze exactly
//       the marks that were checked, equal on all blocks.
//   I2. One cycle at a time; each ends with one outcome.
// Threads: compatible.
// Owns/borrows: borrows the facts, and appends to their actions.
#ifndef SERVER_CHIEF_CHECKPOINT_CHECKPOINT_CYCLE_H_
#define SERVER_CHIEF_CHECKPOINT_CHECKPOINT_CYCLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "proto/ps.pb.h"
#include "server/chief/state/job_facts.h"

namespace weir {

class CheckpointCycle {
 public:
  enum class State {
    kIdle,
    kHolding,    // waits for the workers
    kChecking,   // waits for fresh marks
    kPreparing,  // waits for the directory
    kFreezing,   // waits for every shard to freeze
    kWriting,    // waits for the files
    kReady,      // every file is there
    kCommitting,
  };
  enum class Result { kCommitted, kFailed, kTorn, kPassed, kAbandoned };
  struct Outcome {
    Result result = Result::kFailed;
    absl::Status status;  // kFailed
    uint64_t step = 0;
    std::string name;
    uint64_t bytes = 0;  // of all files
  };

  explicit CheckpointCycle(JobFacts* facts) : facts_(*facts) {}

  State state() const { return state_; }
  // An outcome that nobody took yet keeps the next one from beginning.
  bool idle() const { return state_ == State::kIdle && !outcome_.has_value(); }
  // Workers must not begin a contribution.
  bool wants_hold() const;
  int64_t begun_ns() const { return begun_ns_; }
  uint64_t step() const { return step_; }
  // Names the file that the checkpoint waits for, or "" if it waits for none.
  std::string WaitsFor() const;

  // Begins one in sync, at `version`.
  void BeginAtVersion(uint64_t version);
  // Begins one in async. `hold` says whether workers are at work.
  void BeginFreeze(bool hold);
  // Begins one in sync after a hold, at the version that OnMarks gives.
  void BeginAtNewest();
  // Ends a cycle in kFreezing whose version will not come. The shards drop it
  // when the next one begins.
  void Abandon();

  // kHolding -> kChecking: every worker holds, or the wait for that is over.
  void OnHeld();
  // kChecking: takes the marks after the hold. `torn` says that those of a slot
  // differ, which does not matter at a version.
  void OnMarks(bool torn, std::vector<int64_t> next_sequences);
  // kPreparing: takes the name of the directory that was made.
  void OnPrepared(const absl::StatusOr<std::string>& name);
  // kFreezing: a shard is frozen. `name` is that of the Snapshot call.
  void OnFrozen(int shard, const std::string& name, const SnapshotReply& reply);
  // A shard's Snapshot call has ended.
  void OnWritten(int shard, const std::string& name,
                 const absl::StatusOr<ShardFile>& file);
  // kReady -> kCommitting. Errors: those of JobSource::FillManifest.
  absl::Status Commit();
  void OnCommitted(const absl::Status& status);

  std::optional<Outcome> TakeOutcome();

 private:
  int shard_count() const { return facts_.tracker.count(); }
  void Begin(bool hold, std::optional<uint64_t> version);
  void Prepare(uint64_t step);
  void NoteFrozen(int shard);
  void End(Result result, absl::Status status);

  JobFacts& facts_;
  // The last committed one with all rows of tables, and those since.
  std::string table_base_;
  uint32_t since_table_base_ = 0;
  State state_ = State::kIdle;
  bool hold_ = false;
  bool at_newest_ = false;
  int64_t begun_ns_ = 0;
  std::optional<uint64_t> version_;
  uint64_t step_ = 0;
  std::string name_;
  std::vector<int64_t> next_sequences_;
  std::vector<bool> frozen_;
  std::vector<bool> ended_;
  std::vector<ShardFile> files_;
  bool torn_ = false;
  bool passed_ = false;  // a shard was past the version
  absl::Status error_;
  std::optional<Outcome> outcome_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_CHECKPOINT_CHECKPOINT_CYCLE_H_
