#include "deploy/render/render.h"

#include <memory>
#include <utility>

#include "common/base/status.h"
#include "common/io/files.h"
#include "deploy/render/containerfile.h"
#include "deploy/render/explain.h"
#include "deploy/render/job_memory.h"
#include "deploy/render/plan.h"
#include "deploy/render/target.h"
#include "proto/job/job_spec_text.h"

namespace weir {
namespace {

absl::StatusOr<RenderJob> ReadJob(const RenderOptions& options) {
  RenderJob job;
  WEIR_ASSIGN_OR_RETURN(job.spec, LoadJobSpec(options.job_path, options.sets));
  WEIR_ASSIGN_OR_RETURN(job.text, Files::Real()->ReadAll(options.job_path));
  WEIR_ASSIGN_OR_RETURN(
      job.memory,
      EstimateJobMemory(job.spec, {.ps_count = options.ps_count,
                                   .worker_count = options.worker_count,
                                   .local_data = options.local_data}));
  return job;
}

absl::StatusOr<RenderPlan> Plan(const RenderOptions& options) {
  if (!options.command.empty()) {
    if (!options.job_path.empty()) {
      return Invalid("'", options.job_path,
                     "' and a command after --: write a job file or a command");
    }
    return MakeRenderPlan(options, nullptr);
  }
  if (options.job_path.empty()) {
    return Invalid("name a job file, weir render ", options.target,
                   " job.textproto, or a program, weir render ", options.target,
                   " --image IMAGE -- python train.py");
  }
  // Before the job is measured, which a wrong count would end.
  if (options.ps_count < 1 || options.worker_count < 1) {
    return Invalid("--ps ", options.ps_count, " --workers ",
                   options.worker_count, ": each must be at least 1");
  }
  WEIR_ASSIGN_OR_RETURN(const RenderJob job, ReadJob(options));
  return MakeRenderPlan(options, &job);
}

}  // namespace

absl::StatusOr<RenderedFiles> RenderFiles(const RenderOptions& options) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Target> target,
                        MakeTarget(options.target));
  WEIR_ASSIGN_OR_RETURN(const RenderPlan plan, Plan(options));
  WEIR_RETURN_IF_ERROR(target->Check(plan));
  RenderedFiles files;
  files.manifest = target->Render(plan);
  if (plan.user_program()) {
    files.containerfile = Containerfile(plan);
  }
  std::vector<Choice> choices = plan.choices;
  const std::vector<Choice> more = target->Choices(plan);
  choices.insert(choices.end(), more.begin(), more.end());
  files.explanation = Explain(choices, plan.remarks);
  return files;
}

}  // namespace weir
