#include "proto/task/task_main.h"

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/base/failpoint.h"
#include "common/base/logging.h"
#include "common/base/malloc_settings.h"
#include "common/base/status.h"
#include "proto/job/tf_config.h"
#include "proto/task/grpc_log.h"

namespace weir {
namespace {

struct ClusterFlags {
  std::string cluster;
  std::string task_index;
};

absl::StatusOr<ClusterSpec> FindCluster(TaskRole role,
                                        const ClusterFlags& flags) {
  const char* const name = RoleName(role);
  ClusterSources sources = ClusterSources::FromEnv();
  sources.flag_cluster = flags.cluster;
  sources.flag_task_index = flags.task_index;
  // The flags have no task type: each program has one role.
  if (!flags.cluster.empty() || !flags.task_index.empty()) {
    sources.flag_task_type = name;
  }
  // The evaluator needs nothing of TF_CONFIG. But a malformed one is an error
  // here as in every other program.
  sources.task_required = role != TaskRole::kEvaluator;
  WEIR_ASSIGN_OR_RETURN(ClusterSpec cluster, ResolveCluster(sources));
  if (!sources.task_required) {
    return cluster;
  }
  if (!cluster.task().has_value()) {
    return absl::InvalidArgumentError(
        "no cluster is given; set TF_CONFIG, or --cluster and --task_index, or "
        "run ./weir train for a local one");
  }
  if (cluster.task()->role != role) {
    return Invalid("this task is ", cluster.task()->ToString(), "; weir_", name,
                   " runs a ", name);
  }
  return cluster;
}

// Only now there is a log in which what went wrong before can be said.
absl::Status Run(
    TaskRole role, const ClusterFlags& flags, StopSignal* stop,
    const std::function<absl::Status(const ClusterSpec&, StopSignal*)>& run) {
  const absl::Status failpoints = InitFailpointsFromEnv();
  const auto cluster = FindCluster(role, flags);
  TaskId task = {.role = role, .index = 0};
  if (cluster.ok()) {
    task = cluster->task().value_or(task);
  }
  InitLogging(task.ToString());
  WEIR_RETURN_IF_ERROR(failpoints);
  WEIR_RETURN_IF_ERROR(cluster.status());
  return run(*cluster, stop);
}

}  // namespace

int internal::TaskMain(
    int argc, char** argv, TaskRole role, const std::string& about,
    const std::function<void(CLI::App*)>& add_flags,
    const std::function<absl::Status(const ClusterSpec&, StopSignal*)>& run) {
  SetMallocForBulk();
  LogGrpcAsDebug();
  CLI::App app(absl::StrCat("weir_", RoleName(role), ": ", about));
  ClusterFlags flags;
  if (role != TaskRole::kEvaluator) {
    app.add_option("--cluster", flags.cluster,
                   "\"ps=host:port,...;worker=host:port,...;chief=host:port\"; "
                   "default TF_CONFIG");
    app.add_option("--task_index", flags.task_index,
                   "which task of its role this is; default TF_CONFIG's");
  }
  add_flags(&app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  StopSignal stop({SIGTERM, SIGINT}, [](int signal) {
    LOG_WARN("a second signal: ending at once");
    _exit(128 + signal);
  });
  return EndTask(Run(role, flags, &stop, run), stop);
}

int EndTask(const absl::Status& status, const StopSignal& stop) {
  if (status.ok()) {
    LOG_INFO("done");
    return kExitOk;
  }
  // Any other error is the reason of the end, whatever signal came before it.
  if (absl::IsCancelled(status) && stop.first() != 0) {
    LOG_INFO("ended by signal {}: {}", stop.first(),
             std::string(status.message()));
    return 128 + stop.first();
  }
  LOG_ERROR("{}", std::string(status.message()));
  return ExitCodeFor(status);
}

}  // namespace weir
