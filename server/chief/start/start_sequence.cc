#include "server/chief/start/start_sequence.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cc/job/shard_start.h"
#include "client/cc/job/start_plan.h"
#include "common/base/status.h"
#include "proto/job/job_spec_text.h"
#include "proto/wire/declaration_io.h"
#include "proto/wire/layout_io.h"
#include "server/chief/start/resume_check.h"

namespace weir {
namespace {

// For early contributions of a job that has no limits.out_of_order_bytes.
constexpr uint64_t kDefaultOutOfOrderBytes = uint64_t{256} << 20;

}  // namespace

std::string StartSequence::Describe() const {
  switch (state_) {
    case State::kHello:
      return "waiting for the ps";
    case State::kFinding:
      return "looking for a checkpoint";
    case State::kNeedsVariables:
      return "waiting for the first worker";
    case State::kDeclaring:
      return "declaring the variables";
    case State::kAssigning:
      return options_.sdk_job ? "waiting for worker 0's initial values"
                              : "assigning the initial values";
    case State::kRestoring:
      return "restoring the shards";
    case State::kReadingStatus:
      return "taking over the shards";
    case State::kReady:
      return "in training";
    case State::kFailed:
      break;
  }
  return "failed";
}

void StartSequence::Fail(absl::Status status) {
  state_ = State::kFailed;
  status_ = std::move(status);
}

bool StartSequence::LastAnswer(int shard) {
  answered_[shard] = true;
  return std::count(answered_.begin(), answered_.end(), true) == shard_count();
}

void StartSequence::OnHellos(const std::vector<HelloReply>& hellos,
                             std::vector<Action>* actions) {
  if (state_ != State::kHello) {
    return;
  }
  for (const HelloReply& hello : hellos) {
    // A ps refuses a Restore over a history that this chief did not see here:
    // then another chief was faster.
    incarnations_.push_back(hello.incarnation());
    seen_histories_.push_back(hello.history());
  }
  answered_.assign(shard_count(), false);
  const StartPlan plan =
      PlanStart(options_.spec.name(), options_.shard_names, hellos);
  switch (plan.kind) {
    case StartPlan::Kind::kRefuse:
      Fail(plan.status);
      return;
    case StartPlan::Kind::kReplace:
      if (!options_.resume) {
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
        actions->push_back(ShardCall{s, StatusCall{}});
      }
      return;
  }
  // Also without --resume: a checkpoint that is there must not be trained over.
  state_ = State::kFinding;
  actions->push_back(FindCheckpoint{options_.resume});
}

void StartSequence::OnCheckpointFound(
    const absl::StatusOr<std::optional<FoundCheckpoint>>& found,
    std::vector<Action>* actions) {
  if (state_ != State::kFinding) {
    return;
  }
  if (!differs_.ok()) {
    // The shards keep only a hash of the JobSpec, and a manifest has its text:
    // the checkpoint is looked for only to name the field that differs.
    if (found.ok() && found->has_value()) {
      const absl::StatusOr<JobSpec> before = ParseJobSpec(
          (*found)->manifest.job_spec_text(), "the job of the manifest");
      const std::string difference =
          before.ok() ? FirstDifference(*before, options_.spec) : "";
      if (!difference.empty()) {
        differs_ = absl::InvalidArgumentError(
            absl::StrCat(differs_.message(), ": ", difference));
      }
    }
    Fail(differs_);
    return;
  }
  if (!found.ok()) {
    Fail(found.status());
    return;
  }
  if (!found->has_value()) {
    StartWithoutCheckpoint(actions);
    return;
  }
  if (!options_.resume) {
    Fail(absl::InvalidArgumentError(absl::StrCat(
        (*found)->directory,
        " exists: continue that job with --resume, or choose another "
        "--workdir")));
    return;
  }
  if (options_.sdk_job) {
    found_ = **found;  // to be compared with what the first worker declares
    state_ = State::kNeedsVariables;
    return;
  }
  Restore(**found, actions);
}

void StartSequence::StartWithoutCheckpoint(std::vector<Action>* actions) {
  if (!lost_.ok()) {
    Fail(absl::Status(lost_.code(),
                      absl::StrCat(lost_.message(),
                                   ", and there is no checkpoint yet: stop "
                                   "every task and start the job anew")));
    return;
  }
  // The checkpoints were lost or moved. To start from the beginning would
  // hide that.
  if (options_.resume && options_.trained_to > 0) {
    Fail(absl::InvalidArgumentError(absl::StrCat(
        "--resume: '", options_.checkpoint_directory,
        "' holds no checkpoint, but the job was trained to step ",
        options_.trained_to,
        ", says train.jsonl beside it: put the checkpoints back; to train "
        "from the beginning instead, remove train.jsonl")));
    return;
  }
  if (options_.resume) {
    actions->push_back(LogLine{
        false, "there is no checkpoint yet: starting from the beginning"});
  }
  state_ = State::kNeedsVariables;
}

absl::Status StartSequence::CompleteDeclaration() {
  const JobSpec& spec = options_.spec;
  declaration_.set_job(spec.name());
  declaration_.set_shard_count(static_cast<uint32_t>(shard_count()));
  uint64_t block_elements = spec.limits().block_elements();
  if (block_elements == 0) {
    block_elements = static_cast<uint64_t>(Layout::kDefaultBlockElements);
  }
  declaration_.set_block_elements(block_elements);
  declaration_.clear_group();
  for (const Group& group : GroupsFromSpec(spec)) {
    *declaration_.add_group() = group;
  }
  declaration_.clear_table();
  for (const EmbeddingTable& table : TablesFromSpec(spec)) {
    *declaration_.add_table() = table;
  }
  declaration_.set_seed(spec.seed());
  declaration_.set_slot_count(static_cast<uint32_t>(options_.worker_count));
  uint64_t out_of_order_bytes = spec.limits().out_of_order_bytes();
  if (out_of_order_bytes == 0) {
    out_of_order_bytes = kDefaultOutOfOrderBytes;
  }
  declaration_.set_out_of_order_bytes(out_of_order_bytes);
  declaration_.set_job_spec_hash(options_.spec_hash);
  return BeginHistory();
}

absl::Status StartSequence::BeginHistory() {
  // I1: one history for the one Declare or Restore of this chief. 0 means that
  // there is no history.
  do {
    declaration_.set_history(options_.random());
  } while (declaration_.history() == 0);
  WEIR_ASSIGN_OR_RETURN(Layout layout, LayoutFromDeclaration(declaration_));
  layout_ = std::move(layout);
  return absl::OkStatus();
}

void StartSequence::OnVariables(
    const google::protobuf::RepeatedPtrField<Variable>& list,
    std::vector<Action>* actions) {
  if (state_ != State::kNeedsVariables) {
    return;
  }
  *declaration_.mutable_variable() = list;
  *declaration_.mutable_update() = options_.spec.update();
  if (declaration_.update().has_sync() &&
      declaration_.update().sync().contributions() == 0) {
    declaration_.mutable_update()->mutable_sync()->set_contributions(
        static_cast<uint32_t>(options_.worker_count));
  }
  const absl::Status status = CompleteDeclaration();
  if (!status.ok()) {
    Fail(status);
    return;
  }
  DeclareShards(actions);
}

void StartSequence::DeclareShards(std::vector<Action>* actions) {
  // I1, I2: the states lead here or to RestoreShards, once, and not at all from
  // kReadingStatus.
  state_ = State::kDeclaring;
  for (int s = 0; s < shard_count(); ++s) {
    DeclareRequest request;
    *request.mutable_declaration() = declaration_;
    request.set_shard(static_cast<uint32_t>(s));
    request.set_chief_secret(options_.chief_secret);
    actions->push_back(ShardCall{s, request});
  }
}

void StartSequence::OnSdkDeclaration(const Declaration& declaration,
                                     std::vector<Action>* actions) {
  if (state_ != State::kNeedsVariables) {
    return;
  }
  // What only a chief may say is not taken from a worker.
  declaration_ = declaration;
  declaration_.clear_base_version();
  declaration_.clear_applied_range();
  declaration_.clear_job_spec_hash();
  declaration_.clear_pushes_before();
  declaration_.clear_restored_from();
  absl::Status status;
  if (found_.has_value()) {
    status = ResumeSdkJob(*found_, options_.worker_count, &declaration_);
  }
  if (status.ok()) {
    status = BeginHistory();
  }
  if (!status.ok()) {
    Fail(status);
  } else if (found_.has_value()) {
    RestoreShards(found_->directory, actions);
  } else {
    DeclareShards(actions);
  }
}

void StartSequence::OnValuesAssigned() {
  if (state_ == State::kAssigning && options_.sdk_job) {
    state_ = State::kReady;
  }
}

void StartSequence::Restore(const FoundCheckpoint& found,
                            std::vector<Action>* actions) {
  absl::Status status = CheckResume(options_.spec, found);
  if (!status.ok()) {
    Fail(std::move(status));
    return;
  }
  // What the job was begun with counts, not what this job file or cluster would
  // begin it with: the number of contributions in a step, for instance.
  const Manifest& manifest = found.manifest;
  *declaration_.mutable_variable() = manifest.declaration().variable();
  *declaration_.mutable_update() = manifest.declaration().update();
  *declaration_.mutable_applied_range() = manifest.applied_range();
  declaration_.set_base_version(manifest.step());
  status = CompleteDeclaration();
  if (!status.ok()) {
    Fail(Annotate(status, found.directory));
    return;
  }
  RestoreShards(found.directory, actions);
}

void StartSequence::RestoreShards(const std::string& directory,
                                  std::vector<Action>* actions) {
  if (!lost_.ok()) {
    actions->push_back(LogLine{true, std::string(lost_.message())});
  }
  actions->push_back(LogLine{false, absl::StrCat("restoring ", shard_count(),
                                                 " shards from ", directory)});
  restored_ = true;
  declaration_.set_restored_from(
      directory.substr(directory.rfind('/') + 1));  // npos + 1 is 0
  state_ = State::kRestoring;
  for (int s = 0; s < shard_count(); ++s) {
    RestoreRequest request;
    *request.mutable_declaration() = declaration_;
    request.set_shard(static_cast<uint32_t>(s));
    request.set_checkpoint_dir(directory);
    request.set_seen_history(seen_histories_[s]);
    request.set_chief_secret(options_.chief_secret);
    actions->push_back(ShardCall{s, request});
  }
}

void StartSequence::OnDeclared(int shard,
                               const absl::StatusOr<DeclareReply>& reply,
                               std::vector<Action>* actions) {
  if (state_ != State::kDeclaring && state_ != State::kRestoring) {
    return;
  }
  if (!reply.ok()) {
    Fail(Annotate(reply.status(), options_.shard_names[shard]));
    return;
  }
  // A ps that cuts the variables into other blocks would apply gradients to the
  // wrong elements.
  if (reply->layout_fingerprint() != layout_->fingerprint()) {
    Fail(absl::InternalError(
        absl::StrCat(options_.shard_names[shard],
                     " computed another layout: its version of Weir differs "
                     "from the chief's")));
    return;
  }
  // The process may have been restarted since its Hello; it is this one that
  // holds the shard.
  incarnations_[shard] = reply->incarnation();
  if (!LastAnswer(shard)) {
    return;
  }
  if (state_ == State::kDeclaring && options_.sdk_job) {
    state_ = State::kAssigning;  // by worker 0
    return;
  }
  // A restored shard has its values; --init_from is for a new job.
  if (state_ == State::kRestoring || !options_.init_from) {
    state_ = State::kReady;
    return;
  }
  answered_.assign(shard_count(), false);
  state_ = State::kAssigning;
  const Sender sender = JobSender(declaration_, layout_->fingerprint());
  for (int s = 0; s < shard_count(); ++s) {
    actions->push_back(ShardCall{s, AssignCall{declaration_, sender}});
  }
}

void StartSequence::OnAssigned(int shard, const absl::Status& status) {
  if (state_ != State::kAssigning) {
    return;
  }
  if (!status.ok()) {
    Fail(status);
  } else if (LastAnswer(shard)) {
    state_ = State::kReady;
  }
}

void StartSequence::OnStatus(int shard, const absl::StatusOr<PsStatus>& reply,
                             std::vector<Action>* actions) {
  if (state_ != State::kReadingStatus) {
    return;
  }
  if (!reply.ok()) {
    Fail(Annotate(reply.status(), options_.shard_names[shard]));
    return;
  }
  statuses_[shard] = *reply;
  if (LastAnswer(shard)) {
    Adopt(actions);
  }
}

void StartSequence::Adopt(std::vector<Action>* actions) {
  // Another chief may have restored some of the shards since the Hellos.
  declaration_ = statuses_[0].declaration();
  for (int s = 0; s < shard_count(); ++s) {
    if (statuses_[s].declaration().history() != declaration_.history()) {
      Fail(absl::FailedPreconditionError(absl::StrCat(
          options_.shard_names[s], " changed while it was being taken over")));
      return;
    }
  }
  if (options_.sdk_job && !declaration_.job_spec_hash().empty()) {
    Fail(absl::InvalidArgumentError(
        absl::StrCat("the shards are training '", declaration_.job(),
                     "', which has a job file: start the chief with --job")));
    return;
  }
  if (declaration_.job_spec_hash() != options_.spec_hash) {
    differs_ = absl::InvalidArgumentError(
        "the shards are training another version of this JobSpec");
    state_ = State::kFinding;
    actions->push_back(FindCheckpoint{false});
    return;
  }
  // A slot's share of the contributions follows from the number of slots, so it
  // cannot change under a history.
  if (declaration_.slot_count() !=
      static_cast<uint32_t>(options_.worker_count)) {
    Fail(absl::InvalidArgumentError(
        absl::StrCat("the shards are training with ", declaration_.slot_count(),
                     " workers, this cluster has ", options_.worker_count,
                     ": stop every task and start again with --resume")));
    return;
  }
  absl::StatusOr<Layout> layout = LayoutFromDeclaration(declaration_);
  if (!layout.ok()) {
    Fail(layout.status());
    return;
  }
  layout_ = *std::move(layout);
  state_ = State::kReady;
}

}  // namespace weir
