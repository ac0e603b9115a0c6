// The job of a job file: its workers are interchangeable, and everybody can
// compute how long it is.
#include <algorithm>

#include "common/base/status.h"
#include "common/job/contribution_list.h"
#include "common/job/layout.h"
#include "proto/job/job_spec_text.h"
#include "proto/job/learning_rate.h"
#include "proto/wire/applied_work.h"
#include "proto/wire/declaration_io.h"
#include "server/chief/state/job_source.h"

namespace weir {
namespace {

// For early contributions of a job that has no limits.out_of_order_bytes.
constexpr uint64_t kDefaultOutOfOrderBytes = uint64_t{256} << 20;

// Leaves only what must stay the same while a job continues.
JobSpec KeptFields(JobSpec spec) {
  spec.mutable_train()->clear_epochs();
  spec.mutable_train()->clear_steps();
  spec.mutable_train()->clear_log_every_steps();
  spec.mutable_train()->clear_histograms_every_steps();
  spec.clear_schedule();
  spec.clear_checkpoint();
  spec.clear_evaluation();
  spec.clear_compute();
  spec.clear_limits();
  for (ParameterGroup& group : *spec.mutable_parameter_group()) {
    group.clear_schedule();
  }
  // The number may follow from the number of workers, so the job file need not
  // have it. SpecJob compares it with what the job began with.
  if (spec.update().has_sync()) {
    spec.mutable_update()->mutable_sync()->clear_contributions();
  }
  return spec;
}

uint64_t OrDefault(uint64_t value, uint64_t otherwise) {
  return value == 0 ? otherwise : value;
}

class SpecJob : public JobSource {
 public:
  explicit SpecJob(const JobOptions& options)
      : JobSource(options), spec_text_(CanonicalJobSpecText(options.spec)) {}

  absl::StatusOr<std::optional<Declaration>> Declare(
      const FoundCheckpoint* found) const override {
    const JobSpec& spec = options().spec;
    const auto workers = static_cast<uint32_t>(options().worker_count);
    Declaration declaration;
    if (found != nullptr) {
      WEIR_RETURN_IF_ERROR(CheckResume(*found));
      // What the job was begun with counts, not what this job file or cluster
      // would begin it with: the number of contributions in a step, say.
      const Manifest& manifest = found->manifest;
      *declaration.mutable_variable() = manifest.declaration().variable();
      *declaration.mutable_update() = manifest.declaration().update();
      *declaration.mutable_applied_range() = manifest.applied_range();
      *declaration.mutable_deal() = manifest.deal();
      declaration.set_base_version(manifest.step());
    } else if (!variables_.empty()) {
      *declaration.mutable_variable() = variables_;
      *declaration.mutable_update() = spec.update();
      if (spec.update().has_sync() &&
          spec.update().sync().contributions() == 0) {
        declaration.mutable_update()->mutable_sync()->set_contributions(
            workers);
      }
    } else {
      return std::nullopt;
    }
    declaration.set_job(spec.name());
    declaration.set_shard_count(
        static_cast<uint32_t>(options().ps_addresses.size()));
    declaration.set_block_elements(
        OrDefault(spec.limits().block_elements(),
                  static_cast<uint64_t>(Layout::kDefaultBlockElements)));
    for (const Group& group : GroupsFromSpec(spec)) {
      *declaration.add_group() = group;
    }
    for (const EmbeddingTable& table : TablesFromSpec(spec)) {
      *declaration.add_table() = table;
    }
    declaration.set_seed(spec.seed());
    declaration.set_slot_count(workers);
    declaration.set_out_of_order_bytes(
        OrDefault(spec.limits().out_of_order_bytes(), kDefaultOutOfOrderBytes));
    declaration.set_job_spec_hash(JobSpecHash(spec));
    return declaration;
  }

  absl::Status CheckHeld(const Declaration& held) const override {
    if (held.job_spec_hash() == JobSpecHash(options().spec)) {
      return absl::OkStatus();
    }
    // The shards keep only a hash of the JobSpec, and a manifest has its text:
    // the newest checkpoint is asked only to name the field that differs.
    std::string difference;
    if (options().newest.has_value()) {
      const absl::StatusOr<JobSpec> before = ParseJobSpec(
          options().newest->job_spec_text(), "the job of the manifest");
      if (before.ok()) {
        difference = FirstDifference(*before, options().spec);
      }
    }
    return Invalid("the shards are training another version of this JobSpec",
                   difference.empty() ? "" : ": ", difference);
  }

  bool worker_assigns() const override { return false; }
  bool workers_decide() const override { return false; }
  std::string spec_text() const override { return spec_text_; }
  bool ContinuesWhenDone() const override { return false; }

  absl::Status ReadLength(uint64_t sample_count) override {
    const Train& train = options().spec.train();
    const std::optional<Manifest>& newest = options().newest;
    uint64_t total = kContributionsMax;
    if (sample_count != kEndless || train.steps() > 0) {
      WEIR_ASSIGN_OR_RETURN(total,
                            ContributionCount(train, sample_count, per_step()));
    } else if (newest.has_value() && newest->job_spec_text() == spec_text_) {
      total = newest->contribution_count();
    }
    // Fails where train.steps or epochs were lowered below the checkpoint.
    const absl::StatusOr<ContributionList> list = ContributionList::Create(
        AppliedIn(held()), static_cast<int64_t>(total));
    if (!list.ok()) {
      return Invalid("the job is ", total,
                     " contributions long, shorter than what its checkpoint "
                     "holds: ",
                     list.status().message());
    }
    list_ = *list;
    step_count_ = total;
    if (sync()) {
      // The last step may lack contributions, hence the division rounds up.
      step_count_ = held().base_version() +
                    (total - before() + per_step() - 1) / per_step();
    }
    return absl::OkStatus();
  }

  uint64_t contribution_count() const override {
    return static_cast<uint64_t>(list_.total());
  }

  TrainLog::Options CurveOptions(uint64_t step, bool adopted) const override {
    TrainLog::Options log;
    log.contributions_per_step = per_step();
    log.every_steps = std::max(options().spec.train().log_every_steps(), 1u);
    log.first_step = held().base_version();
    log.first_contribution = before();
    const uint64_t logged =
        std::max(ContinueCurve(step, &log), held().base_version());
    if (sync() && adopted) {
      // Workers may still hold reports of steps that the chief before did not
      // write down, so the curve goes on behind its last line.
      log.base_step = std::min(logged, step);
    }
    log.learning_rate = [this](uint64_t t) {
      return LearningRate(options().spec.schedule(), t);
    };
    return log;
  }

  void TakeMarks(int slot, const SlotMarks& marks,
                 Roster::Worker* worker) const override {
    // Marks are as old as the last Hello, and a worker that is gone tells
    // nothing more: the larger of the two is the newer one.
    worker->next_sequence =
        std::min(std::max(worker->next_sequence, marks.next_sequence()),
                 CountOfSlot(slot));
  }

  Reach Count(const Roster& roster) const override {
    if (!sync()) {
      return {before() + roster.ContributionsDone(), step_count_};
    }
    uint64_t step = step_count_;
    for (int w = 0; w < roster.count(); ++w) {
      if (ContributionsPerStep(w) > 0) {
        // A step is done when the slowest of those that take part in it is.
        step = std::min(step, StepOf(w, roster.worker(w)));
      }
    }
    return {step, step_count_};
  }

  bool Done(int slot, const Roster::Worker& worker) const override {
    return worker.next_sequence >= CountOfSlot(slot);
  }

  absl::Status FillManifest(uint64_t step, const std::vector<int64_t>& next,
                            Manifest* manifest) const override {
    AppliedWork applied;
    if (sync()) {
      // Sync takes contributions in their order: what is applied is one range
      // from 0, and the last step may be shorter than the others.
      const auto done = static_cast<int64_t>(
          before() + (step - held().base_version()) * per_step());
      applied.ranges.push_back({0, std::min(done, list_.total())});
    } else {
      WEIR_ASSIGN_OR_RETURN(applied, list_.Applied(next));
    }
    SetApplied(applied, manifest);
    manifest->set_contribution_count(contribution_count());
    manifest->set_job_spec_text(spec_text_);
    return absl::OkStatus();
  }

 private:
  absl::Status CheckJob(const RegisterRequest& request,
                        const std::string& who) override {
    if (request.has_declaration()) {
      return Invalid(
          who, " is a program of the SDK, the chief was started with --job");
    }
    const std::string spec =
        FirstDifference(options().spec, request.job_spec());
    if (!spec.empty()) {
      return Invalid(who, " runs another JobSpec: ", spec);
    }
    if (request.variable_size() == 0 || request.sample_count() == 0) {
      return Invalid(who, " has ", request.variable_size(), " variables and ",
                     request.sample_count(),
                     " samples; both must be at least 1");
    }
    // The length of the job follows from the number of samples, so a worker
    // with other data would compute other contributions under the same numbers.
    if (sample_count_ != 0 && request.sample_count() != sample_count_) {
      return Invalid(who, " has a data set of ", request.sample_count(),
                     " samples, other workers have ", sample_count_);
    }
    auto list = request.variable();
    WEIR_RETURN_IF_ERROR(AssignGroups(options().spec, &list));
    if (!variables_.empty()) {
      const std::string variable = FirstVariableDifference(variables_, list);
      if (!variable.empty()) {
        return Invalid(who, " brings another model: ", variable);
      }
    }
    // I1: nothing is kept before the last check. I2: what is kept here is what
    // everybody was compared with, or the first that was said.
    if (variables_.empty()) {
      variables_ = list;
    }
    sample_count_ = request.sample_count();
    return absl::OkStatus();
  }

  void Expect(const Declaration& declaration) override {
    variables_ = declaration.variable();
  }
  std::string async_unit() const override { return "contribution "; }

  absl::Status CheckResume(const FoundCheckpoint& found) const {
    const Manifest& manifest = found.manifest;
    if (manifest.job_spec_text().empty()) {
      return Invalid(
          found.directory,
          " was made by a program of the SDK: continue it without --job, or "
          "choose another --workdir");
    }
    const absl::StatusOr<JobSpec> before =
        ParseJobSpec(manifest.job_spec_text(), "the job of the manifest");
    if (!before.ok()) {
      return Annotate(before.status(), found.directory);
    }
    const std::string difference =
        FirstResumeDifference(*before, options().spec);
    if (!difference.empty()) {
      return Invalid(found.directory,
                     " was made by another JobSpec: ", difference);
    }
    // The marks of a step say nothing about another number of contributions. 0
    // leaves the number to us, and the one of the checkpoint is kept.
    const Update& update = manifest.declaration().update();
    const uint32_t contributions =
        options().spec.update().sync().contributions();
    if (update.has_sync() && contributions != 0 &&
        contributions != update.sync().contributions()) {
      return Invalid(found.directory,
                     " was made with update.sync.contributions ",
                     update.sync().contributions(), ", not ", contributions);
    }
    return absl::OkStatus();
  }

  // Contributions that earlier histories applied.
  uint64_t before() const {
    return static_cast<uint64_t>(list_.applied_count());
  }

  // Contributions of `slot` in this history.
  uint64_t CountOfSlot(int slot) const {
    if (sync()) {
      return (step_count_ - held().base_version()) * ContributionsPerStep(slot);
    }
    return static_cast<uint64_t>(
        list_.ContributionCount(slot, options().worker_count));
  }

  const std::string spec_text_;  // canonical
  // With their groups. Empty before the first worker.
  google::protobuf::RepeatedPtrField<Variable> variables_;
  uint64_t sample_count_ = 0;  // 0: nobody said it yet
  ContributionList list_;
  uint64_t step_count_ = 0;
};

}  // namespace

std::string FirstResumeDifference(const JobSpec& before, const JobSpec& now) {
  return FirstDifference(KeptFields(before), KeptFields(now));
}

std::unique_ptr<JobSource> MakeSpecJob(const JobOptions& options) {
  return std::make_unique<SpecJob>(options);
}

}  // namespace weir
