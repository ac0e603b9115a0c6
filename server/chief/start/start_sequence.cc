#include "server/chief/start/start_sequence.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cc/job/start_plan.h"
#include "common/base/status.h"
#include "proto/wire/layout_io.h"

namespace weir {
namespace {

// For the first answers of the ps in a stop: a ps that is told to end, too,
// waits no longer for a chief.
constexpr int64_t kStopHelloNs = 5'000'000'000;

}  // namespace

std::string StartSequence::Describe() const {
  if (state_ == State::kAssigning && facts_.job->worker_assigns()) {
    return "waiting for worker 0's initial values";
  }
  static constexpr const char* kWhat[] = {"waiting for the ps",
                                          "looking for a checkpoint",
                                          "waiting for the first worker",
                                          "declaring the variables",
                                          "assigning the initial values",
                                          "restoring the shards",
                                          "taking over the shards",
                                          "in training",
                                          "failed"};
  static_assert(std::size(kWhat) == static_cast<size_t>(State::kFailed) + 1);
  return kWhat[static_cast<size_t>(state_)];
}

void StartSequence::Fail(absl::Status status) {
  state_ = State::kFailed;
  status_ = std::move(status);
}

bool StartSequence::LastAnswer(int shard, const absl::Status& status) {
  if (!status.ok()) {
    Fail(Annotate(status, facts_.tracker.Name(shard)));
    return false;
  }
  answered_[shard] = true;
  return std::count(answered_.begin(), answered_.end(), false) == 0;
}

// I3. A shard that another chief has loaded meanwhile refuses this one. Which
// of the two has more is not known before all have answered.
bool StartSequence::LastLoaded(int shard, const absl::Status& status) {
  if (absl::IsPermissionDenied(status)) {
    taken_[shard] = Annotate(status, facts_.tracker.Name(shard));
    answered_[shard] = true;
  } else if (!LastAnswer(shard, status)) {
    return false;
  }
  if (std::count(answered_.begin(), answered_.end(), false) > 0) {
    return false;
  }
  const auto taken =
      std::find_if(taken_.begin(), taken_.end(),
                   [](const absl::Status& why) { return !why.ok(); });
  if (taken == taken_.end()) {
    return true;
  }
  const bool all = std::all_of(taken_.begin(), taken_.end(),
                               [](const auto& why) { return !why.ok(); });
  Fail(all ? *taken
           : absl::UnavailableError(absl::StrCat(
                 "another chief loads the shards at the same time: ",
                 taken->message(), "; start this chief again")));
  return false;
}

bool StartSequence::ShardsMayHoldWork() const {
  if (adopted_) {
    return true;
  }
  bool may = state_ == State::kHello &&
             facts_.now_ns() - facts_.stop_ns < kStopHelloNs;
  // Only what all of them hold can be saved.
  for (int s = 0; s < shard_count(); ++s) {
    may = may && (!facts_.tracker.Fresh(s, 1) ||
                  facts_.tracker.hello(s).state() == ACTIVE);
  }
  return may;
}

void StartSequence::OnHellos(const std::vector<HelloReply>& hellos) {
  if (state_ != State::kHello) {
    return;
  }
  for (size_t s = 0; s < hellos.size(); ++s) {
    const HelloReply& hello = hellos[s];
    if (!hello.keeps_checkpoints()) {
      Fail(Invalid(facts_.tracker.Name(static_cast<int>(s)),
                   " keeps no checkpoints: start it with --checkpoint_root, "
                   "the directory that is ",
                   facts_.options.checkpoint_directory, " here"));
      return;
    }
    // A ps refuses a Restore over a history that this chief did not see here:
    // then another chief was faster.
    incarnations_.push_back(hello.incarnation());
    seen_histories_.push_back(hello.history());
  }
  answered_.assign(shard_count(), false);
  taken_.assign(shard_count(), absl::OkStatus());
  const bool resume = facts_.options.resume;
  const StartPlan plan =
      PlanStart(facts_.options.spec.name(), facts_.tracker.Names(), hellos);
  switch (plan.kind) {
    case StartPlan::Kind::kRefuse:
      Fail(plan.status);
      return;
    case StartPlan::Kind::kReplace:
      if (!resume) {
        Fail(absl::Status(plan.status.code(),
                          absl::StrCat(plan.status.message(),
                                       "; start the job again with --resume")));
        return;
      }
      lost_ = plan.status;
      break;
    case StartPlan::Kind::kLoad:
      break;
    case StartPlan::Kind::kAdopt:
      // I2: the shards keep what they hold; only their declaration is read.
      adopted_ = true;
      statuses_.resize(hellos.size());
      state_ = State::kReadingStatus;
      for (int s = 0; s < shard_count(); ++s) {
        facts_.Do(ShardCall{s, StatusCall{}});
      }
      return;
  }
  // Also without --resume: a checkpoint that is there must not be trained over.
  state_ = State::kFinding;
  facts_.Do(FindCheckpoint{resume});
}

void StartSequence::OnCheckpointFound(
    const absl::StatusOr<std::optional<FoundCheckpoint>>& found) {
  if (state_ != State::kFinding) {
    return;
  }
  if (!found.ok()) {
    Fail(found.status());
    return;
  }
  found_ = *found;
  if (!found_.has_value()) {
    StartWithoutCheckpoint();
    return;
  }
  if (!facts_.options.resume) {
    Fail(Invalid(found_->directory,
                 " exists: continue that job with --resume, or choose another "
                 "--workdir"));
    return;
  }
  state_ = State::kNeedsJob;
  Load();
}

void StartSequence::StartWithoutCheckpoint() {
  if (!lost_.ok()) {
    begins_anew_ = facts_.options.resume && facts_.options.never_saved;
    Fail(absl::Status(
        lost_.code(),
        absl::StrCat(lost_.message(), ", and there is no checkpoint yet: ",
                     begins_anew_ ? "every ps is told to end and to begin anew"
                                  : "stop every task and start the job anew")));
    return;
  }
  uint64_t trained_to = 0;
  for (const TrainLine& line : facts_.options.train_lines) {
    trained_to = std::max(trained_to, line.step);
  }
  // The checkpoints were lost or moved. To start from the beginning would
  // hide that. Where none was ever committed there is nothing to hide.
  if (facts_.options.resume && trained_to > 0 && !facts_.options.never_saved) {
    Fail(Invalid(
        "--resume: '", facts_.options.checkpoint_directory,
        "' holds no checkpoint, but the job was trained to step ", trained_to,
        ", says train.jsonl beside it: put the checkpoints back; to train "
        "from the beginning instead, remove train.jsonl"));
    return;
  }
  if (facts_.options.resume) {
    facts_.Say("there is no checkpoint yet: starting from the beginning");
  }
  state_ = State::kNeedsJob;
}

absl::Status StartSequence::Hold(const Declaration& declaration) {
  WEIR_ASSIGN_OR_RETURN(const Layout layout,
                        LayoutFromDeclaration(declaration));
  facts_.layout_fingerprint = layout.fingerprint();
  facts_.job->Hold(declaration);
  return absl::OkStatus();
}

void StartSequence::Load() {
  if (state_ != State::kNeedsJob) {
    return;
  }
  absl::StatusOr<std::optional<Declaration>> job =
      facts_.job->Declare(found_.has_value() ? &*found_ : nullptr);
  absl::Status status = job.status();
  if (status.ok()) {
    if (!job->has_value()) {
      return;
    }
    // I1: one history for the one Declare or Restore of this chief. 0 means
    // that there is no history.
    Declaration& declaration = **job;
    do {
      declaration.set_history(facts_.options.random());
    } while (declaration.history() == 0);
    if (found_.has_value()) {
      declaration.set_restored_from(found_->manifest.name());
    }
    status = Hold(declaration);
    if (found_.has_value()) {
      status = Annotate(status, found_->directory);
    }
  }
  if (!status.ok()) {
    Fail(std::move(status));
  } else if (found_.has_value()) {
    RestoreShards();
  } else {
    DeclareShards();
  }
}

// I1, I2: the states lead to one of these two, once, and not at all from
// kReadingStatus.
void StartSequence::DeclareShards() {
  state_ = State::kDeclaring;
  for (int s = 0; s < shard_count(); ++s) {
    DeclareRequest request;
    *request.mutable_declaration() = facts_.job->held();
    request.set_shard(static_cast<uint32_t>(s));
    request.set_chief_secret(facts_.options.chief_secret);
    facts_.Do(ShardCall{s, request});
  }
}

void StartSequence::RestoreShards() {
  if (!lost_.ok()) {
    facts_.Warn(std::string(lost_.message()));
  }
  facts_.Say("restoring ", shard_count(), " shards from ", found_->directory);
  restored_ = true;
  state_ = State::kRestoring;
  for (int s = 0; s < shard_count(); ++s) {
    RestoreRequest request;
    *request.mutable_declaration() = facts_.job->held();
    request.set_shard(static_cast<uint32_t>(s));
    request.set_checkpoint(found_->manifest.name());
    request.set_seen_history(seen_histories_[s]);
    request.set_chief_secret(facts_.options.chief_secret);
    facts_.Do(ShardCall{s, request});
  }
}

void StartSequence::OnDeclared(int shard,
                               const absl::StatusOr<DeclareReply>& reply) {
  if (state_ != State::kDeclaring && state_ != State::kRestoring) {
    return;
  }
  absl::Status status = reply.status();
  // A ps that cuts the variables into other blocks would apply gradients to the
  // wrong elements.
  if (reply.ok() && reply->layout_fingerprint() != facts_.layout_fingerprint) {
    status = absl::InternalError(
        "it computed another layout: its version of Weir differs from the "
        "chief's");
  }
  if (status.ok()) {
    // The process may have been restarted since its Hello; it is this one that
    // holds the shard.
    incarnations_[shard] = reply->incarnation();
  }
  if (!LastLoaded(shard, status)) {
    return;
  }
  // A restored shard has its values; --init_from is for a new job.
  const bool assign =
      facts_.job->worker_assigns() || !facts_.options.init_from.empty();
  if (state_ == State::kRestoring || !assign) {
    state_ = State::kReady;
    return;
  }
  state_ = State::kAssigning;
  if (facts_.job->worker_assigns()) {
    return;
  }
  answered_.assign(shard_count(), false);
  for (int s = 0; s < shard_count(); ++s) {
    facts_.Do(
        ShardCall{s, AssignCall{facts_.job->held(), facts_.ChiefSender()}});
  }
}

void StartSequence::OnValuesAssigned() {
  if (state_ == State::kAssigning) {
    state_ = State::kReady;
  }
}

void StartSequence::OnAssigned(int shard, const absl::Status& status) {
  if (state_ != State::kAssigning) {
    return;
  }
  if (!status.ok()) {
    Fail(status);  // it names the file, or the shard
  } else if (LastAnswer(shard, status)) {
    state_ = State::kReady;
  }
}

void StartSequence::OnStatus(int shard, const absl::StatusOr<PsStatus>& reply) {
  if (state_ != State::kReadingStatus) {
    return;
  }
  if (reply.ok()) {
    statuses_[shard] = *reply;
  }
  if (LastAnswer(shard, reply.status())) {
    Adopt();
  }
}

void StartSequence::Adopt() {
  const Declaration& declaration = statuses_[0].declaration();
  // Since the Hellos another chief may have restored some of the shards, and a
  // ps may have been started again, empty.
  for (int s = 0; s < shard_count(); ++s) {
    if (statuses_[s].declaration().history() != seen_histories_[s]) {
      Fail(absl::FailedPreconditionError(absl::StrCat(
          facts_.tracker.Name(s), " changed while it was being taken over")));
      return;
    }
  }
  absl::Status status = facts_.job->CheckHeld(declaration);
  // A slot's share of the contributions follows from the number of slots, so it
  // cannot change under a history.
  const auto workers = static_cast<uint32_t>(facts_.options.worker_count);
  if (status.ok() && declaration.slot_count() != workers) {
    status = Invalid("the shards are training with ", declaration.slot_count(),
                     " workers, this cluster has ", workers,
                     ": stop every task and start again with --resume");
  }
  if (status.ok()) {
    status = Hold(declaration);
    if (found_.has_value()) {
      status = Annotate(status, found_->directory);
    }
  }
  if (!status.ok()) {
    Fail(std::move(status));
    return;
  }
  state_ = State::kReady;
}

}  // namespace weir
