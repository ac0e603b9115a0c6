#include "deploy/launcher/run.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "common/base/status.h"
#include "deploy/launcher/job_run.h"
#include "deploy/launcher/local_cluster.h"
#include "deploy/launcher/user_command.h"
#include "deploy/launcher/workdir.h"

namespace weir {
namespace {

// Without a chief nobody has to write a checkpoint before the end, so workers
// get less time than Supervisor's default.
constexpr auto kWorkerInterruptGrace = std::chrono::seconds(10);

// Puts the program that the first word of `argv` names in place of that word.
absl::Status Resolve(std::vector<std::string>* argv) {
  if (argv->empty()) {
    return absl::OkStatus();
  }
  // Only the main thread reads or changes the environment.
  const char* path = std::getenv("PATH");  // NOLINT
  if (path == nullptr) {
    path = "/bin:/usr/bin";  // execvp's without a PATH
  }
  WEIR_ASSIGN_OR_RETURN(argv->front(), FindProgram(argv->front(), path));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> EvaluatorCommand(
    const std::string& text) {
  WEIR_ASSIGN_OR_RETURN(std::vector<std::string> argv, SplitWords(text));
  WEIR_RETURN_IF_ERROR(Resolve(&argv));
  return argv;
}

// Turns the options into a plan of tasks. Makes the working directory last, so
// that a wrong option leaves nothing behind.
// `workdir` becomes the run's directory, if it has one.
absl::StatusOr<LocalCluster> Plan(const RunOptions& options, Workdir* workdir) {
  if (options.command.empty()) {
    return absl::InvalidArgumentError(
        "there is no command; write it after --: weir run "
        "--workers 2 -- python train.py");
  }
  if (options.ps_count < 1 || options.worker_count < 1) {
    return Invalid("--ps ", options.ps_count, " --workers ",
                   options.worker_count, ": each must be at least 1");
  }
  if ((options.resume || !options.chief_flags.empty()) && !options.chief) {
    return Invalid(options.resume ? "--resume" : options.chief_flags[0],
                   " is the chief's, who writes checkpoints and restores "
                   "them: add --chief");
  }
  if (options.admin.wanted() && !options.chief) {
    return absl::InvalidArgumentError(
        "the admin port is the chief's: add --chief");
  }
  CommandClusterOptions cluster{options};
  cluster.chief_flags = options.chief_flags;
  cluster.worker = options.command;
  WEIR_RETURN_IF_ERROR(Resolve(&cluster.worker));
  const auto evaluator = EvaluatorCommand(options.evaluator);
  if (!evaluator.ok()) {
    return Annotate(evaluator.status(), "--evaluator");
  }
  cluster.evaluator = *evaluator;
  if (!options.workdir.empty() || options.chief) {
    WEIR_ASSIGN_OR_RETURN(
        *workdir,
        PrepareWorkdir({.workdir = options.workdir,
                        .name = RunName(options.command),
                        .resume = options.resume && options.checkpoints.empty(),
                        .exclusive = options.chief}));
    cluster.workdir = workdir->path;
    if (options.workdir.empty()) {
      std::fprintf(stderr, "weir run: working directory %s\n",
                   cluster.workdir.c_str());
    }
  }
  WEIR_ASSIGN_OR_RETURN(LocalCluster plan, PlanCommandCluster(cluster));
  WEIR_RETURN_IF_ERROR(KeepSecret(cluster.workdir, plan.security));
  WEIR_RETURN_IF_ERROR(KeepCluster(cluster.workdir, plan.cluster_json));
  return plan;
}

}  // namespace

absl::StatusOr<int> RunCommand(const RunOptions& options) {
  Workdir workdir;
  WEIR_ASSIGN_OR_RETURN(const LocalCluster plan, Plan(options, &workdir));
  PageAnnouncer page(options.admin, workdir.path, plan.security,
                     [](const std::string& line) {
                       std::fprintf(stderr, "weir run: %s\n", line.c_str());
                     });
  JobRun::Options run_options;
  run_options.program = "weir run";
  run_options.rules.user_commands = true;
  run_options.rules.max_restarts = options.max_restarts;
  run_options.on_poll = [&page](int64_t) { page.Poll(); };
  if (!options.chief) {
    run_options.rules.interrupt_grace = kWorkerInterruptGrace;
  }
  WEIR_ASSIGN_OR_RETURN(const auto run, JobRun::Create(plan, run_options));
  WEIR_RETURN_IF_ERROR(run->Run());
  run->Explain();
  return run->exit_code();
}

}  // namespace weir
