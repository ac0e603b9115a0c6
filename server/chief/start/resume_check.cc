#include "server/chief/start/resume_check.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "proto/job/job_spec_text.h"
#include "proto/wire/declaration_io.h"

namespace weir {
namespace {

// Leaves only what must stay the same while a job continues.
JobSpec KeptFields(JobSpec spec) {
  spec.mutable_train()->clear_epochs();
  spec.mutable_train()->clear_steps();
  spec.mutable_train()->clear_log_every_steps();
  spec.clear_schedule();
  spec.clear_checkpoint();
  spec.clear_evaluation();
  spec.clear_compute();
  spec.clear_limits();
  for (ParameterGroup& group : *spec.mutable_parameter_group()) {
    group.clear_schedule();
  }
  // The number may follow from the number of workers, so the job file need not
  // have it. CheckResume compares it with what the job began with.
  if (spec.update().has_sync()) {
    spec.mutable_update()->mutable_sync()->clear_contributions();
  }
  return spec;
}

}  // namespace

std::string FirstResumeDifference(const JobSpec& before, const JobSpec& now) {
  return FirstDifference(KeptFields(before), KeptFields(now));
}

absl::Status CheckResume(const JobSpec& spec, const FoundCheckpoint& found) {
  const Manifest& manifest = found.manifest;
  if (manifest.job_spec_text().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        found.directory,
        " was made by a program of the SDK: continue it without --job, or "
        "choose another --workdir"));
  }
  const absl::StatusOr<JobSpec> before =
      ParseJobSpec(manifest.job_spec_text(), "the job of the manifest");
  if (!before.ok()) {
    return Annotate(before.status(), found.directory);
  }
  const std::string difference = FirstResumeDifference(*before, spec);
  if (!difference.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        found.directory, " was made by another JobSpec: ", difference));
  }
  // The marks of a step say nothing about another number of contributions. 0
  // leaves the number to us, and the one of the checkpoint is kept.
  const Update& update = manifest.declaration().update();
  const uint32_t contributions = spec.update().sync().contributions();
  if (update.has_sync() && contributions != 0 &&
      contributions != update.sync().contributions()) {
    return absl::InvalidArgumentError(absl::StrCat(
        found.directory, " was made with update.sync.contributions ",
        update.sync().contributions(), ", not ", contributions));
  }
  return absl::OkStatus();
}

absl::Status ResumeSdkJob(const FoundCheckpoint& found, int worker_count,
                          Declaration* declaration) {
  const Manifest& manifest = found.manifest;
  if (!manifest.job_spec_text().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        found.directory,
        " was made by a job file: continue it with --job, or choose another "
        "--workdir"));
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
  if (manifest.pushes_size() == worker_count) {
    *declaration->mutable_pushes_before() = manifest.pushes();
    return absl::OkStatus();
  }
  // Other workers go on, each as if it had made its share: in sync every worker
  // pushes once for a step.
  uint64_t share = manifest.step();
  if (!manifest.declaration().update().has_sync()) {
    uint64_t pushes = 0;
    for (const uint64_t of_slot : manifest.pushes()) {
      pushes += of_slot;
    }
    share = pushes / static_cast<uint64_t>(worker_count);
  }
  declaration->mutable_pushes_before()->Resize(worker_count, share);
  return absl::OkStatus();
}

}  // namespace weir
