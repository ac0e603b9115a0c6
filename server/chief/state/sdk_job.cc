// The job that its workers bring: programs of the SDK declare it, push when
// they like and end when they like.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "proto/wire/declaration_io.h"
#include "server/chief/state/job_source.h"

namespace weir {
namespace {

class SdkJob : public JobSource {
 public:
  explicit SdkJob(const JobOptions& options) : JobSource(options) {}

  absl::StatusOr<std::optional<Declaration>> Declare(
      const FoundCheckpoint* found) const override {
    if (!declaration_.has_value()) {
      return std::nullopt;
    }
    // What only a chief may say is not taken from a worker.
    Declaration declaration = *declaration_;
    declaration.clear_base_version();
    declaration.clear_applied_range();
    declaration.clear_deal();
    declaration.clear_job_spec_hash();
    declaration.clear_pushes_before();
    declaration.clear_restored_from();
    if (found != nullptr) {
      WEIR_RETURN_IF_ERROR(Resume(*found, &declaration));
    }
    return declaration;
  }

  absl::Status CheckHeld(const Declaration& held) const override {
    if (held.job_spec_hash().empty()) {
      return absl::OkStatus();
    }
    return Invalid("the shards are training '", Printable(held.job()),
                   "', which has a job file: start the chief with --job");
  }

  bool worker_assigns() const override { return true; }
  bool workers_decide() const override { return true; }
  std::string spec_text() const override { return ""; }
  // Nobody but its program knows how long the job is.
  bool ContinuesWhenDone() const override { return options().resume; }
  absl::Status ReadLength(uint64_t) override { return absl::OkStatus(); }
  uint64_t contribution_count() const override { return 0; }
  TrainLog::Options CurveOptions(uint64_t step, bool) const override {
    TrainLog::Options log;
    log.of_scripts = true;
    ContinueCurve(step, &log);
    return log;
  }

  void TakeMarks(int, const SlotMarks& marks,
                 Roster::Worker* worker) const override {
    worker->next_sequence =
        std::max(worker->next_sequence, marks.next_sequence());
    // Only the shards know: a program retires its slot there by itself.
    worker->retired = worker->retired || marks.RetiredIn(worker->generation);
  }

  Reach Count(const Roster& roster) const override {
    uint64_t slowest = UINT64_MAX;  // over the workers that go on
    uint64_t fastest = 0;
    for (int w = 0; w < roster.count(); ++w) {
      const Roster::Worker& worker = roster.worker(w);
      fastest = std::max(fastest, worker.next_sequence);
      if (!worker.retired) {
        slowest = std::min(slowest, worker.next_sequence);
      }
    }
    const bool all_done = slowest == UINT64_MAX;
    uint64_t steps = roster.ContributionsDone();
    if (sync()) {
      // Retired slots are passed over, so the slowest of the others decides;
      // without others the last step is the one that the fastest got to.
      steps = all_done ? fastest : slowest;
    }
    const uint64_t step = held().base_version() + steps;
    return {step, all_done ? step : kEndless};
  }

  bool Done(int, const Roster::Worker& worker) const override {
    return worker.retired;
  }

  absl::Status FillManifest(uint64_t step, const std::vector<int64_t>& next,
                            Manifest* manifest) const override {
    for (int w = 0; w < options().worker_count; ++w) {
      // Sync: the marks of a retired slot move with the others', so the step is
      // what every slot has pushed.
      uint64_t pushes = step;
      if (!sync()) {
        pushes = PushesBefore(w) + static_cast<uint64_t>(next[w]);
      }
      manifest->add_pushes(pushes);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckJob(const RegisterRequest& request,
                        const std::string& who) override {
    if (!request.has_declaration()) {
      return Invalid(who,
                     " runs a job file, the chief was started without --job");
    }
    const Declaration& declaration = request.declaration();
    WEIR_RETURN_IF_ERROR(CheckDeclaration(declaration, who));
    if (!declaration_.has_value()) {
      declaration_ = declaration;  // I2: the first one is the job
      return absl::OkStatus();
    }
    if (declaration_->job() != declaration.job()) {
      return absl::AlreadyExistsError(absl::StrCat(
          who, " declares job '", Printable(declaration.job()),
          "', the chief runs '", Printable(declaration_->job()), "'"));
    }
    const std::string difference =
        FirstDeclarationDifference(*declaration_, declaration);
    if (!difference.empty()) {
      return absl::AlreadyExistsError(absl::StrCat(
          who, ": ", difference, "; every worker must declare the same"));
    }
    return absl::OkStatus();
  }

  void Expect(const Declaration& declaration) override {
    declaration_ = declaration;
  }
  std::string async_unit() const override { return "push "; }

  // What a declaration must have before it is compared with others.
  absl::Status CheckDeclaration(const Declaration& declaration,
                                const std::string& who) const {
    const size_t ps = options().ps_addresses.size();
    const auto workers = static_cast<uint32_t>(options().worker_count);
    if (declaration.shard_count() != ps ||
        declaration.slot_count() != workers) {
      return Invalid(who, " names ", declaration.shard_count(), " ps and ",
                     declaration.slot_count(), " workers, the chief ", ps,
                     " and ", workers, "; compare TF_CONFIG of both tasks");
    }
    if (declaration.job().empty() ||
        declaration.variable_size() + declaration.table_size() == 0 ||
        declaration.group_size() == 0) {
      return Invalid(who, " declares job '", Printable(declaration.job()),
                     "' with ", declaration.variable_size(), " tensors, ",
                     declaration.table_size(), " tables and ",
                     declaration.group_size(),
                     " groups; a job has a tensor or a table, and a group");
    }
    // A program pushes when it likes, so only "one of each" ends a step that
    // nobody has counted out beforehand.
    const Update& update = declaration.update();
    if (update.has_sync() && update.sync().contributions() != workers) {
      return Invalid(who, ": a sync step has one push of every worker, not ",
                     update.sync().contributions(), " of ", workers);
    }
    return absl::OkStatus();
  }

  // Sets where `declaration` goes on from `found`.
  absl::Status Resume(const FoundCheckpoint& found,
                      Declaration* declaration) const {
    const Manifest& manifest = found.manifest;
    if (!manifest.job_spec_text().empty()) {
      return Invalid(
          found.directory,
          " was made by a job file: continue it with --job, or choose another "
          "--workdir");
    }
    const std::string difference =
        FirstTensorDifference(manifest.declaration(), *declaration);
    if (!difference.empty()) {
      return absl::AlreadyExistsError(
          absl::StrCat(found.directory,
                       " was made by another model (called \"on the server\" "
                       "here): ",
                       difference));
    }
    declaration->set_base_version(manifest.step());
    const int workers = options().worker_count;
    if (manifest.pushes_size() == workers) {
      *declaration->mutable_pushes_before() = manifest.pushes();
      return absl::OkStatus();
    }
    // Other workers go on, each as if it had made its share: in sync every
    // worker pushes once for a step.
    uint64_t share = manifest.step();
    if (!manifest.declaration().update().has_sync()) {
      uint64_t pushes = 0;
      for (const uint64_t of_slot : manifest.pushes()) {
        pushes += of_slot;
      }
      share = pushes / static_cast<uint64_t>(workers);
    }
    declaration->mutable_pushes_before()->Resize(workers, share);
    return absl::OkStatus();
  }

  // What the first worker declared, or what the shards hold.
  std::optional<Declaration> declaration_;
};

}  // namespace

std::unique_ptr<JobSource> MakeSdkJob(const JobOptions& options) {
  return std::make_unique<SdkJob>(options);
}

}  // namespace weir
