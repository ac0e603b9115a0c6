#include "proto/task/task_main.h"

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/base/failpoint.h"
#include "common/base/limits.h"
#include "common/base/logging.h"
#include "common/base/malloc_settings.h"
#include "common/base/status.h"
#include "common/io/close_memory.h"
#include "proto/job/tf_config.h"
#include "proto/task/admin_flags.h"
#include "proto/task/grpc_log.h"
#include "proto/task/job_flags.h"
#include "proto/task/security_flags.h"

namespace weir {
namespace {

// The flags that every task has.
struct ClusterFlags {
  std::string cluster;
  std::string task_index;
  Security::Options security = Security::Options::FromEnvironment();
  AdminFlags admin = AdminFlags::FromEnvironment();
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

absl::StatusOr<std::shared_ptr<const Security>> FindSecurity(
    const TaskId& task, const Security::Options& options) {
  if (task.role == TaskRole::kEvaluator) {
    // It talks to nobody, but the job's secret may be in its environment.
    if (!options.insecure) {
      CloseMemory();
    }
    return Security::Insecure();
  }
  WEIR_ASSIGN_OR_RETURN(
      auto security,
      Security::Create(options, PeerRoleOf(task.role), task.index));
  if (security->secured()) {
    CloseMemory();
    LOG_DEBUG("this task is {}, by {}", security->self().ToUri(),
              security->ModeName());
  } else {
    LOG_WARN(
        "insecure: whoever reaches this task's port can read the parameters, "
        "change them and end the job");
  }
  return security;
}

// Only now there is a log in which what went wrong before can be said.
absl::Status Run(TaskRole role, const ClusterFlags& flags,
                 const LogOptions& log, StopSignal* stop,
                 const std::function<absl::Status(const Task&)>& run) {
  const absl::Status failpoints = InitFailpointsFromEnv();
  const auto cluster = FindCluster(role, flags);
  TaskId id = {.role = role, .index = 0};
  if (cluster.ok()) {
    id = cluster->task().value_or(id);
  }
  WEIR_RETURN_IF_ERROR(InitLogging(id.ToString(), log));
  WEIR_RETURN_IF_ERROR(failpoints);
  WEIR_RETURN_IF_ERROR(cluster.status());
  Task task;
  task.cluster = *cluster;
  task.stop = stop;
  const HostMeter host;
  task.host = &host;
  WEIR_ASSIGN_OR_RETURN(task.security, FindSecurity(id, flags.security));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<AdminServer> admin,
                        StartAdmin(flags.admin, id, flags.security));
  task.admin = admin.get();
  return run(task);
}

}  // namespace

int internal::TaskMain(int argc, char** argv, TaskRole role,
                       const std::string& about,
                       const std::function<void(CLI::App*)>& add_flags,
                       const std::function<absl::Status(const Task&)>& run) {
  // The chief moves nothing in bulk, and gives back what a burst took.
  if (role != TaskRole::kChief) {
    SetMallocForBulk();
  }
  // A write beyond `ulimit -f` then fails as on a full disk (EFBIG), which the
  // task can say and live with.
  signal(SIGXFSZ, SIG_IGN);
  SetUpTls();
  RaiseDescriptorLimit();
  LogGrpcAsDebug();
  CLI::App app(absl::StrCat("weir_", RoleName(role), ": ", about));
  ClusterFlags flags;
  LogOptions log = LogOptions::FromEnvironment();
  AddLogFlags(&app, &log);
  if (role != TaskRole::kEvaluator) {
    app.add_option("--cluster", flags.cluster,
                   "\"ps=host:port,...;worker=host:port,...;chief=host:port\"; "
                   "default TF_CONFIG");
    app.add_option("--task_index", flags.task_index,
                   "which task of its role this is; default TF_CONFIG's");
    AddSecurityFlags(&app, &flags.security);
  }
  AddTaskAdminFlags(&app, &flags.admin);
  add_flags(&app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  // Below `weir task` that one says when to end at once, by SIGKILL: a batch
  // system signals all processes of a step, and weir task hands the signal on.
  // Read once, before any thread exists.
  const bool once = std::getenv("WEIR_STOPS_ONCE") != nullptr;  // NOLINT
  StopSignal stop({SIGTERM, SIGINT}, [once](int signal) {
    if (once) {
      return;
    }
    LOG_WARN("a second signal: ending at once");
    _exit(128 + signal);
  });
  return EndTask(Run(role, flags, log, &stop, run), stop);
}

PeerRole PeerRoleOf(TaskRole role) {
  switch (role) {
    case TaskRole::kPs:
      return PeerRole::kPs;
    case TaskRole::kChief:
      return PeerRole::kChief;
    case TaskRole::kWorker:
      return PeerRole::kWorker;
    case TaskRole::kEvaluator:
      break;
  }
  return PeerRole::kReader;
}

AccessControl::Options AccessOptions(const Task& task) {
  AccessControl::Options options;
  options.security = task.security;
  options.has_chief = task.cluster.has_chief();
  // With a partial view the tasks are not known.
  const int workers = task.cluster.worker_count();
  if (workers > 0) {
    options.connections_max =
        kConnectionsBase + kConnectionsPerWorker * workers;
    options.unproven_max = kConnectionsBase + workers;
  }
  return options;
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
