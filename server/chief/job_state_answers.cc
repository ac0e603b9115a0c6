// JobState's events that come from shards and from files, and its status.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "server/chief/job_state.h"

namespace weir {

void JobState::OnHello(int shard, const absl::StatusOr<HelloReply>& reply) {
  now_ns_ = options_.clock->NowNs();
  tracker_.Answered(shard, reply, now_ns_);
  if (absl::IsInvalidArgument(reply.status())) {  // a ps of another release
    Fail(Annotate(reply.status(), tracker_.Name(shard)));
  }
  // A ps that got SIGTERM serves on for a while, so that there is time for a
  // checkpoint. In a later phase the job ends anyway.
  if (reply.ok() && reply->leaving() && phase_ <= Phase::kTraining) {
    RequestStop(absl::StrCat(tracker_.Name(shard), " was asked to end"));
  }
  Advance();
}

void JobState::OnStatus(int shard, const absl::StatusOr<PsStatus>& reply) {
  now_ns_ = options_.clock->NowNs();
  start_.OnStatus(shard, reply, &actions_);
  Advance();
}

void JobState::OnDeclared(int shard,
                          const absl::StatusOr<DeclareReply>& reply) {
  now_ns_ = options_.clock->NowNs();
  start_.OnDeclared(shard, reply, &actions_);
  Advance();
}

void JobState::OnAssigned(int shard, const absl::Status& status) {
  now_ns_ = options_.clock->NowNs();
  start_.OnAssigned(shard, status);
  Advance();
}

void JobState::OnSlotsSet(int shard, const absl::Status& status) {
  now_ns_ = options_.clock->NowNs();
  if (!Running()) {
    return;  // the round was asked for by a job that has ended meanwhile
  }
  if (!status.ok()) {
    // I6: PERMISSION_DENIED means that another chief has granted slots.
    Fail(Annotate(status, tracker_.Name(shard)));
  } else if (!slots_set_.empty()) {
    slots_set_[shard] = true;
  }
  Advance();
}

void JobState::OnFrozen(int shard, const std::string& directory,
                        const SnapshotReply& reply) {
  now_ns_ = options_.clock->NowNs();
  if (superseded_) {
    return;  // I3: Finish was the last action
  }
  cycle_.OnFrozen(shard, directory, reply);
  Advance();
}

void JobState::OnWritten(int shard, const std::string& directory,
                         const absl::StatusOr<ShardFile>& file) {
  now_ns_ = options_.clock->NowNs();
  absl::StatusOr<ShardFile> named = file;
  if (!file.ok()) {
    named = Annotate(file.status(), tracker_.Name(shard));
  }
  // I6: the shard is in another history, whose chief took it. Any other error
  // is one of this checkpoint only, and the cycle decides.
  if (absl::IsPermissionDenied(named.status())) {
    Fail(named.status());
  }
  if (superseded_) {
    return;
  }
  cycle_.OnWritten(shard, directory, named, &actions_);
  Advance();
}

void JobState::OnShutdown(int shard) {
  now_ns_ = options_.clock->NowNs();
  if (!shut_down_.empty()) {
    shut_down_[shard] = true;
  }
  Advance();
}

void JobState::OnCheckpointFound(
    const absl::StatusOr<std::optional<FoundCheckpoint>>& found) {
  now_ns_ = options_.clock->NowNs();
  start_.OnCheckpointFound(found, &actions_);
  Advance();
}

void JobState::OnPrepared(const absl::StatusOr<std::string>& name) {
  now_ns_ = options_.clock->NowNs();
  if (superseded_) {
    return;
  }
  cycle_.OnPrepared(name, &actions_);
  Advance();
}

void JobState::OnCommitted(const absl::Status& status) {
  now_ns_ = options_.clock->NowNs();
  cycle_.OnCommitted(status);
  Advance();
}

void JobState::OnEvaluated() {
  now_ns_ = options_.clock->NowNs();
  if (phase_ == Phase::kEvaluating) {
    End(absl::OkStatus(), true);
  }
  Advance();
}

ChiefStatus JobState::status() const {
  ChiefStatus status;
  if (phase_ < Phase::kTraining) {
    status.set_phase(ChiefStatus::WAITING);
    status.set_message(start_.Describe());
  } else if (phase_ == Phase::kTraining) {
    status.set_phase(ChiefStatus::TRAINING);
  } else if (final_status_.ok()) {
    status.set_phase(ChiefStatus::FINISHING);
    if (phase_ == Phase::kOver) {
      status.set_phase(ChiefStatus::DONE);
    }
  } else {
    status.set_phase(ChiefStatus::FAILED);
    status.set_message(std::string(final_status_.message()));
  }
  status.set_step(step_);
  status.set_step_count(step_count_ == kEndless ? 0 : step_count_);
  status.set_checkpoint(checkpoint_);
  if (train_log_.has_value()) {
    status.set_loss(train_log_->loss());
    status.set_examples_per_second(train_log_->examples_per_second());
    status.set_staleness_mean(train_log_->staleness_mean());
    status.set_staleness_max(train_log_->staleness_max());
    status.set_examples(train_log_->examples());
  }
  return status;
}

}  // namespace weir
