#include "server/chief/checkpoint/checkpoint_cycle.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cc/job/slot_marks.h"
#include "common/base/status.h"
#include "proto/checkpoint/checkpoint_files.h"

namespace weir {
namespace {

// Every so many checkpoints one has all rows of tables; the others have the
// rows that were touched since. An SDK job has no spec, so nothing filled in
// the default.
uint32_t TablesFullEvery(const JobSpec& spec) {
  const uint32_t every = spec.checkpoint().tables_full_every();
  return every == 0 ? 5 : every;
}

}  // namespace

bool CheckpointCycle::wants_hold() const {
  // The workers go on once the shards are frozen: files are written from what
  // was frozen.
  return hold_ && (state_ == State::kHolding || state_ == State::kChecking ||
                   state_ == State::kPreparing || state_ == State::kFreezing);
}

void CheckpointCycle::Begin(bool hold, std::optional<uint64_t> version) {
  hold_ = hold;
  begun_ns_ = facts_.now_ns();
  version_ = version;
  at_newest_ = false;
  next_sequences_.clear();
  // Without workers there is nobody to wait for.
  state_ = hold ? State::kHolding : State::kChecking;
}

void CheckpointCycle::BeginAtVersion(uint64_t version) {
  Begin(/*hold=*/false, version);
  Prepare(version);
}

void CheckpointCycle::BeginFreeze(bool hold) { Begin(hold, std::nullopt); }

void CheckpointCycle::BeginAtNewest() {
  Begin(/*hold=*/true, std::nullopt);
  at_newest_ = true;
}

std::string CheckpointCycle::WaitsFor() const {
  switch (state_) {
    case State::kPreparing:
      return "its directory";
    case State::kCommitting:
      return "its manifest";
    case State::kWriting:
      break;
    default:
      return "";
  }
  std::vector<int> shards;
  for (int s = 0; s < shard_count(); ++s) {
    if (!ended_[s]) {
      shards.push_back(s);
    }
  }
  return absl::StrCat("the file of ps ", absl::StrJoin(shards, ", "));
}

void CheckpointCycle::Abandon() {
  // Later than kFreezing the version was there, and the rest takes no worker.
  if (state_ == State::kFreezing) {
    facts_.Do(DiscardCheckpoint{name_});
    End(Result::kAbandoned, absl::OkStatus());
  }
}

void CheckpointCycle::OnHeld() {
  if (state_ == State::kHolding) {
    state_ = State::kChecking;
  }
}

void CheckpointCycle::OnMarks(bool torn, std::vector<int64_t> next_sequences) {
  if (state_ != State::kChecking) {
    return;
  }
  if (at_newest_) {
    // A version is the same on every shard by itself: marks do not matter, and
    // a contribution that is torn belongs to a later version.
    version_ = facts_.step;
    next_sequences.clear();
  } else if (torn) {
    // I1: unequal marks before the freeze would be unequal after it.
    End(Result::kTorn, absl::OkStatus());
    return;
  }
  next_sequences_ = std::move(next_sequences);
  Prepare(facts_.step);
}

void CheckpointCycle::Prepare(uint64_t step) {
  step_ = step;
  name_ = CheckpointName(step);  // until the directory is made, for messages
  frozen_.assign(shard_count(), false);
  ended_.assign(shard_count(), false);
  files_.assign(shard_count(), ShardFile());
  torn_ = passed_ = false;
  error_ = absl::OkStatus();
  state_ = State::kPreparing;
  facts_.Do(PrepareCheckpoint{step});
}

void CheckpointCycle::OnPrepared(const absl::StatusOr<std::string>& name) {
  if (state_ != State::kPreparing) {
    return;
  }
  if (!name.ok()) {
    End(Result::kFailed, name.status());
    return;
  }
  // Answers say this name, so that a late one of an earlier attempt is told
  // apart.
  name_ = *name;
  state_ = State::kFreezing;
  for (int s = 0; s < shard_count(); ++s) {
    SnapshotRequest request;
    *request.mutable_sender() = facts_.ChiefSender();
    request.set_checkpoint(name_);
    if (version_.has_value()) {
      request.set_version(*version_);
    }
    // An empty base asks for all rows. Increments extend the last full one, not
    // each other, so a restore reads two files at most.
    if (since_table_base_ + 1 < TablesFullEvery(facts_.options.spec)) {
      request.set_table_base(table_base_);
    }
    facts_.Do(ShardCall{s, request});
  }
}

void CheckpointCycle::OnFrozen(int shard, const std::string& name,
                               const SnapshotReply& reply) {
  if (state_ != State::kFreezing || name != name_ || frozen_[shard]) {
    return;
  }
  // I1: a worker that was too slow to hold may have pushed between the check of
  // the marks and the freeze.
  if (!version_.has_value()) {
    for (size_t slot = 0; slot < next_sequences_.size(); ++slot) {
      SlotMarks marks(static_cast<uint32_t>(slot));
      marks.Add(reply.slot());
      const auto expected = static_cast<uint64_t>(next_sequences_[slot]);
      torn_ = torn_ || marks.torn() ||
              (!marks.empty() && marks.next_sequence() != expected);
    }
  }
  NoteFrozen(shard);
}

void CheckpointCycle::NoteFrozen(int shard) {
  frozen_[shard] = true;
  if (state_ == State::kFreezing &&
      std::count(frozen_.begin(), frozen_.end(), true) == shard_count()) {
    state_ = State::kWriting;
  }
}

void CheckpointCycle::OnWritten(int shard, const std::string& name,
                                const absl::StatusOr<ShardFile>& file) {
  if ((state_ != State::kFreezing && state_ != State::kWriting) ||
      name != name_ || ended_[shard]) {
    return;
  }
  ended_[shard] = true;
  if (file.ok()) {
    files_[shard] = *file;
  } else if (file.status().code() == absl::StatusCode::kOutOfRange) {
    passed_ = true;  // not an error of the disk: another version will do
  } else if (error_.ok()) {
    error_ = file.status();
  }
  // A call that ended froze its shard, or never will: do not wait for it.
  NoteFrozen(shard);
  if (std::count(ended_.begin(), ended_.end(), true) < shard_count()) {
    return;
  }
  if (error_.ok() && !passed_ && !torn_) {
    state_ = State::kReady;
    return;
  }
  facts_.Do(DiscardCheckpoint{name_});
  // An error comes first: it is the one that somebody may have to mend.
  Result result = Result::kTorn;
  if (!error_.ok()) {
    result = Result::kFailed;
  } else if (passed_) {
    result = Result::kPassed;
  }
  End(result, error_);
}

absl::Status CheckpointCycle::Commit() {
  Manifest manifest;
  *manifest.mutable_declaration() = facts_.job->held();
  WEIR_RETURN_IF_ERROR(
      facts_.job->FillManifest(step_, next_sequences_, &manifest));
  manifest.set_name(name_);
  manifest.set_step(step_);
  for (const ShardFile& file : files_) {
    *manifest.add_file() = file;
  }
  state_ = State::kCommitting;
  facts_.Do(CommitCheckpoint{std::move(manifest)});
  return absl::OkStatus();
}

void CheckpointCycle::OnCommitted(const absl::Status& status) {
  if (state_ == State::kCommitting) {
    if (status.ok()) {
      ++since_table_base_;
      for (const ShardFile& file : files_) {
        // A shard may write all rows unasked. Then this checkpoint is the base
        // of all shards: one that does not know it writes all rows next time.
        if (file.has_tables() && file.tables().base().empty()) {
          table_base_ = name_;
          since_table_base_ = 0;
        }
      }
    } else {
      // A base that is gone would make every later increment fail, too.
      table_base_.clear();
    }
    End(status.ok() ? Result::kCommitted : Result::kFailed, status);
  }
}

void CheckpointCycle::End(Result result, absl::Status status) {
  // I2: idle() stays false until the owner has taken the outcome.
  state_ = State::kIdle;
  outcome_ = Outcome{result, std::move(status), step_, name_, /*bytes=*/0};
  for (const ShardFile& file : files_) {
    outcome_->bytes += file.bytes() + file.tables().bytes();
  }
}

std::optional<CheckpointCycle::Outcome> CheckpointCycle::TakeOutcome() {
  return std::exchange(outcome_, std::nullopt);
}

}  // namespace weir
