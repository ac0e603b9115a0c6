#include "deploy/launcher/task.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "common/io/close_memory.h"
#include "common/objects/any_store.h"
#include "deploy/launcher/end_of_job.h"
#include "deploy/launcher/job_run.h"
#include "deploy/launcher/local_cluster.h"
#include "deploy/launcher/task_door.h"
#include "deploy/launcher/user_command.h"
#include "proto/admin/admin_port.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/job/job_spec_text.h"

namespace weir {
namespace {

// A run this long was no failed start, so the count of restarts begins anew.
constexpr auto kHealthyAfter = std::chrono::minutes(10);
// Beyond the grace of the program: its last words and its end.
constexpr auto kGraceMargin = std::chrono::seconds(3);

absl::Status CheckOptions(const TaskOptions& options, const TaskId& task) {
  const bool reads_job = task.role != TaskRole::kPs && options.command.empty();
  const bool brings_job =
      task.role == TaskRole::kChief && options.job_path.empty();
  if (reads_job && !brings_job && options.job_path.empty()) {
    return Invalid("this task is ", task.ToString(),
                   ": give it the job file with --job, or the command of your "
                   "own program after --");
  }
  if (!options.command.empty() && !options.job_path.empty()) {
    return absl::InvalidArgumentError(
        "a program of your own brings its job: leave out --job or the command "
        "after --");
  }
  if (options.workdir.empty() && options.checkpoints.empty() &&
      task.role != TaskRole::kWorker) {
    return Invalid("this task is ", task.ToString(),
                   ": give it the run's directory, which chief, ps and "
                   "evaluator share, with --workdir");
  }
  return absl::OkStatus();
}

absl::StatusOr<SingleTaskOptions> PlanOptions(const TaskOptions& options,
                                              const ClusterSpec& cluster) {
  SingleTaskOptions plan;
  plan.task = *cluster.task();
  plan.bin_dir = options.bin_dir;
  plan.workdir = options.workdir;
  plan.checkpoints = options.checkpoints;
  plan.log = options.log;
  plan.chief = cluster.has_chief();
  plan.resume = true;
  plan.allow_older = options.allow_older;
  plan.allow_unguarded = options.allow_unguarded;
  plan.transport = options.transport;
  plan.job_path = options.job_path;
  plan.data_dir = options.data_dir;
  plan.evaluator = options.evaluator_expected;
  plan.device = options.device;
  plan.device_plugin = options.device_plugin;
  plan.sets = options.sets;
  plan.grace_seconds = options.grace_seconds;
  plan.admin = options.admin;
  if (!plan.admin.port.has_value()) {
    plan.admin.port = kAdminPort;
    plan.admin.may_miss = true;
  }
  // One command for all containers: ps and chief are Weir's own programs.
  if (plan.task.role == TaskRole::kWorker ||
      plan.task.role == TaskRole::kEvaluator) {
    plan.command = options.command;
  }
  if (!plan.command.empty()) {
    const std::string path = options.sources.variable("PATH");
    WEIR_ASSIGN_OR_RETURN(plan.command.front(),
                          FindProgram(plan.command.front(),
                                      path.empty() ? "/bin:/usr/bin" : path));
  }
  if (!options.sources.layout.empty()) {
    plan.cluster_text = ClusterText(cluster);
  }
  return plan;
}

// The job whose DONE tells a ps that it is over, as JobIsDone takes it; nullopt
// where there is no job file, and so no way to tell the DONE of another job.
absl::StatusOr<std::optional<std::string>> JobToEnd(const TaskOptions& options,
                                                    TaskRole role) {
  if (role != TaskRole::kPs || options.job_path.empty()) {
    return std::nullopt;
  }
  WEIR_ASSIGN_OR_RETURN(const JobSpec spec,
                        LoadJobSpec(options.job_path, options.sets));
  return CanonicalJobSpecText(spec);
}

JobRun::Options RunOptionsOf(const TaskOptions& options, const TaskId& task) {
  JobRun::Options run;
  run.program = absl::StrCat("weir task ", task.ToString());
  run.rules.alone = true;
  run.rules.max_restarts = options.max_restarts;
  run.rules.healthy_after = kHealthyAfter;
  run.rules.user_commands = !options.command.empty();
  run.rules.interrupt_grace = std::chrono::nanoseconds(static_cast<int64_t>(
                                  options.grace_seconds * 1e9)) +
                              kGraceMargin;
  run.pass_output = true;
  run.reap_orphans = true;
  return run;
}

}  // namespace

absl::StatusOr<int> RunTask(const TaskOptions& options) {
  WEIR_ASSIGN_OR_RETURN(const ClusterSpec cluster,
                        IdentityFromOperator(options.sources));
  const TaskId& task = *cluster.task();
  WEIR_RETURN_IF_ERROR(CheckOptions(options, task));
  WEIR_ASSIGN_OR_RETURN(const SingleTaskOptions plan,
                        PlanOptions(options, cluster));
  WEIR_ASSIGN_OR_RETURN(const std::optional<std::string> job,
                        JobToEnd(options, task.role));
  // It owns what it needs: a look that hangs may outlive this function.
  const auto is_done =
      [job, place = PlaceOfRun(options.workdir, options.checkpoints)] {
        return JobIsDone(AnyStore(), place, *job);
      };
  JobRun::Options run_options = RunOptionsOf(options, task);
  if (job.has_value() && is_done()) {
    absl::FPrintF(stderr, "%s: the job is done\n", run_options.program);
    return kExitOk;
  }
  CloseMemory();  // the job's secret may be in the environment
  // All are set below: the run blocks the signals first, and only then the
  // threads of the others may begin.
  JobRun* run = nullptr;
  TaskDoor* door = nullptr;
  std::optional<EndOfJob> end;
  bool is_over = false;
  run_options.on_poll = [&](int64_t now_ns) {
    if (door != nullptr) {
      door->SetRuns(run->tasks()[0].running);
    }
    if (end.has_value() && end->IsOver(now_ns)) {
      is_over = true;
      run->Stop(kExitOk);
    }
  };
  WEIR_ASSIGN_OR_RETURN(const auto owned,
                        JobRun::Create(PlanSingleTask(plan), run_options));
  run = owned.get();
  if (job.has_value()) {
    end.emplace(is_done);
  }
  const auto opened = TaskDoor::Open(TaskDoorName(cluster));
  if (opened.ok()) {
    door = opened->get();
  } else {
    absl::FPrintF(stderr, "%s: weir probe will get no answer: %s\n",
                  run_options.program, opened.status().message());
  }
  WEIR_RETURN_IF_ERROR(run->Run());
  return is_over ? kExitOk : run->exit_code();
}

}  // namespace weir
