#include "deploy/launcher/local_cluster.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/objects/any_store.h"
#include "nlohmann/json.hpp"
#include "proto/security/job_secret.h"

namespace weir {
namespace {

absl::StatusOr<std::vector<std::string>> Addresses(int count) {
  std::vector<std::string> addresses;
  for (int i = 0; i < count; ++i) {
    WEIR_ASSIGN_OR_RETURN(const int port, FreePort());
    addresses.push_back(absl::StrCat("127.0.0.1:", port));
  }
  return addresses;
}

std::string BinaryPath(const std::string& bin_dir, const std::string& role) {
  std::string folder = "worker";  // holds the evaluator, too
  if (role == "ps") {
    folder = "server/ps";
  } else if (role == "chief") {
    folder = "server/chief";
  }
  return absl::StrCat(bin_dir, "/", folder, "/weir_", role);
}

// Confines a ps to the run's checkpoints: it writes and reads where the chief
// tells it over the network, and has no business in any other directory.
std::vector<std::string> PsArguments(const ClusterOptions& options) {
  std::vector<std::string> argv = {BinaryPath(options.bin_dir, "ps")};
  const std::string place = PlaceOfRun(options.workdir, options.checkpoints);
  if (!place.empty()) {
    argv.insert(argv.end(),
                {"--checkpoint_root", absl::StrCat(place, "/checkpoints")});
  }
  return argv;
}

void AddCheckpointsFlag(const ClusterOptions& options,
                        std::vector<std::string>* argv) {
  if (!options.checkpoints.empty()) {
    argv->insert(argv->end(), {"--checkpoints", options.checkpoints});
  }
}

void AddChiefFlags(const ClusterOptions& options,
                   std::vector<std::string>* argv) {
  if (options.resume) {
    argv->push_back("--resume");
  }
  if (options.allow_older) {
    argv->push_back("--allow_older");
  }
  if (options.allow_unguarded) {
    argv->push_back("--allow_unguarded");
  }
}

// Exactly one process hosts the chief: its own task or else worker 0.
bool HostsChief(const ClusterOptions& options, const LocalTask& task) {
  return task.role == "chief" ||
         (task.role == "worker" && task.index == 0 && !options.chief);
}

void AddAdminFlags(const ClusterOptions& options,
                   std::vector<std::string>* argv) {
  const std::vector<std::string> words = options.admin.Words();
  argv->insert(argv->end(), words.begin(), words.end());
}

// Returns the command line of a task of Weir that reads the job file.
std::vector<std::string> JobArguments(const LocalClusterOptions& options,
                                      const LocalTask& task) {
  std::vector<std::string> argv = {BinaryPath(options.bin_dir, task.role)};
  if (task.role == "worker") {
    argv.insert(argv.end(),
                {"--transport", options.transport, "--channels_per_peer",
                 absl::StrCat(options.channels_per_peer)});
  }
  argv.insert(argv.end(), {"--job", options.job_path, "--workdir",
                           options.workdir, "--data_dir", options.data_dir});
  AddCheckpointsFlag(options, &argv);
  if (task.role != "chief") {
    argv.insert(argv.end(), {"--device", options.device});
    if (!options.device_plugin.empty()) {
      argv.insert(argv.end(), {"--device_plugin", options.device_plugin});
    }
  }
  // No other one writes or restores a checkpoint.
  if (HostsChief(options, task)) {
    AddChiefFlags(options, &argv);
    if (!options.init_from.empty()) {
      argv.insert(argv.end(), {"--init_from", options.init_from});
    }
    if (options.evaluator) {
      argv.push_back("--evaluator_expected");
    }
  }
  return argv;
}

// A variable that would win over TF_CONFIG in a task is not handed on: the user
// may have set it for a cluster of their own, and an empty one counts as unset.
std::vector<std::string> Environment(const std::string& tf_config) {
  std::vector<std::string> environment = {
      absl::StrCat("TF_CONFIG=", tf_config)};
  for (const char* name :
       {"WEIR_CLUSTER", "WEIR_TASK_TYPE", "WEIR_TASK_INDEX"}) {
    // Only the main thread reads or changes the environment.
    if (std::getenv(name) != nullptr) {  // NOLINT
      environment.push_back(absl::StrCat(name, "="));
    }
  }
  return environment;
}

// The choice of security, by variables: a command line can be read by every
// user. All of them are set, so that none of the launcher's own remains.
void AddSecurity(const Security::Options& security,
                 std::vector<std::string>* environment) {
  environment->insert(
      environment->end(),
      {absl::StrCat("WEIR_SECRET=", security.secret),
       absl::StrCat("WEIR_SECRET_FILE=", security.secret_file),
       absl::StrCat("WEIR_TLS_DIR=", security.tls_dir),
       absl::StrCat("WEIR_IDENTITY=",
                    absl::StrJoin(security.identity_rules, ",")),
       absl::StrCat("WEIR_INSECURE=", security.insecure ? "1" : "")});
}

void AddLog(const LogOptions& log, std::vector<std::string>* environment) {
  if (!log.levels.empty()) {
    environment->push_back(absl::StrCat("WEIR_LOG_LEVEL=", log.levels));
  }
  if (!log.format.empty()) {
    environment->push_back(absl::StrCat("WEIR_LOG_FORMAT=", log.format));
  }
}

// Plans tasks with their TF_CONFIG and log; only those of the ps have a command
// line.
absl::StatusOr<LocalCluster> PlanTasks(const ClusterOptions& options,
                                       bool evaluator) {
  nlohmann::json cluster;
  LocalCluster plan;
  plan.security = options.security;
  if (!plan.security.any()) {
    plan.security.secret = JobSecret::Draw().text();
  }
  WEIR_ASSIGN_OR_RETURN(const auto ps, Addresses(options.ps_count));
  WEIR_ASSIGN_OR_RETURN(const auto workers, Addresses(options.worker_count));
  cluster["ps"] = ps;
  cluster["worker"] = workers;
  plan.chief_address = workers[0];
  if (options.chief) {
    WEIR_ASSIGN_OR_RETURN(const auto chief, Addresses(1));
    cluster["chief"] = chief;
    plan.chief_address = chief[0];
  }
  plan.cluster_json = nlohmann::json({{"cluster", cluster}}).dump();
  // Tasks are started in this order. The evaluator serves nobody, so it needs
  // no address; TF_CONFIG names it by its task alone.
  const std::vector<std::pair<std::string, int>> roles = {
      {"ps", options.ps_count},
      {"chief", options.chief ? 1 : 0},
      {"worker", options.worker_count},
      {"evaluator", evaluator ? 1 : 0}};
  for (const auto& [role, count] : roles) {
    for (int i = 0; i < count; ++i) {
      LocalTask task;
      task.role = role;
      task.index = i;
      const nlohmann::json config = {{"cluster", cluster},
                                     {"task", {{"type", role}, {"index", i}}}};
      ChildCommand command;
      command.environment = Environment(config.dump());
      AddSecurity(SecurityOf(plan.security, role, i), &command.environment);
      AddLog(options.log, &command.environment);
      if (!options.workdir.empty()) {
        command.log_path =
            absl::StrCat(options.workdir, "/logs/", role, "-", i, ".log");
      }
      if (role == "ps") {
        command.argv = PsArguments(options);
        if (!options.workdir.empty()) {
          command.argv.insert(
              command.argv.end(),
              {"--audit_log",
               absl::StrCat(options.workdir, "/logs/audit-ps-", i, ".jsonl")});
        }
      }
      plan.tasks.push_back(std::move(task));
      plan.commands.push_back(std::move(command));
    }
  }
  return plan;
}

// Adds what a user's program is told beside its cluster.
void AddUserEnvironment(const ClusterOptions& options,
                        std::vector<std::string>* environment) {
  environment->push_back(absl::StrCat("WEIR_TRANSPORT=", options.transport));
  if (!options.workdir.empty()) {
    environment->push_back(absl::StrCat("WEIR_WORKDIR=", options.workdir));
  }
  // Empty as well: what this process has inherited is of another run.
  environment->push_back(
      absl::StrCat("WEIR_CHECKPOINTS=", AbsolutePlace(options.checkpoints)));
  // Python buffers what it prints to a pipe, and a program that is killed would
  // lose its last lines. A user who has set the variable knows better.
  // Only the main thread reads or changes the environment.
  if (std::getenv("PYTHONUNBUFFERED") == nullptr) {  // NOLINT
    environment->push_back("PYTHONUNBUFFERED=1");
  }
}

// Copies that each take every core hold each other up.
void AddThreads(int workers, std::vector<std::string>* environment) {
  // Only the main thread reads or changes the environment.
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {  // NOLINT
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    environment->push_back(
        absl::StrCat("OMP_NUM_THREADS=", std::max(1, cores / workers)));
  }
}

// The command line of a chief whose job the workers bring.
std::vector<std::string> BroughtJobChiefArguments(
    const ClusterOptions& options) {
  std::vector<std::string> argv = {BinaryPath(options.bin_dir, "chief"),
                                   "--workdir", options.workdir};
  AddCheckpointsFlag(options, &argv);
  AddChiefFlags(options, &argv);
  return argv;
}

std::vector<std::string> SingleTaskArguments(const SingleTaskOptions& options,
                                             const LocalTask& task) {
  std::vector<std::string> argv;
  if (task.role == "ps") {
    // Its audit log is the log of the container.
    argv = PsArguments(options);
    argv.insert(argv.end(),
                {"--grace_seconds", absl::StrCat(options.grace_seconds)});
  } else if (!options.command.empty()) {
    argv = options.command;
  } else if (task.role == "chief" && options.job_path.empty()) {
    argv = BroughtJobChiefArguments(options);
  } else {
    argv = JobArguments(options, task);
    for (const std::string& set : options.sets) {
      argv.insert(argv.end(), {"--set", set});
    }
  }
  if (options.command.empty()) {
    AddAdminFlags(options, &argv);  // a user's program does not know them
  }
  return argv;
}

}  // namespace

Security::Options SecurityOf(Security::Options all, const std::string& role,
                             int index) {
  const std::string own = absl::StrCat(all.tls_dir, "/", role, "-", index);
  std::error_code ignored;
  if (!all.tls_dir.empty() && std::filesystem::is_directory(own, ignored)) {
    all.tls_dir = own;
  }
  return all;
}

absl::StatusOr<LocalCluster> PlanLocalCluster(
    const LocalClusterOptions& options) {
  WEIR_ASSIGN_OR_RETURN(LocalCluster plan,
                        PlanTasks(options, options.evaluator));
  for (size_t i = 0; i < plan.tasks.size(); ++i) {
    if (plan.tasks[i].role != "ps") {
      plan.commands[i].argv = JobArguments(options, plan.tasks[i]);
    }
    if (HostsChief(options, plan.tasks[i])) {
      AddAdminFlags(options, &plan.commands[i].argv);
    }
  }
  return plan;
}

absl::StatusOr<LocalCluster> PlanCommandCluster(
    const CommandClusterOptions& options) {
  WEIR_ASSIGN_OR_RETURN(LocalCluster plan,
                        PlanTasks(options, !options.evaluator.empty()));
  for (size_t i = 0; i < plan.tasks.size(); ++i) {
    const std::string& role = plan.tasks[i].role;
    ChildCommand& command = plan.commands[i];
    if (role == "chief") {
      command.argv = BroughtJobChiefArguments(options);
      command.argv.insert(command.argv.end(), options.chief_flags.begin(),
                          options.chief_flags.end());
      AddAdminFlags(options, &command.argv);
    } else if (role != "ps") {
      command.argv = options.worker;
      if (role == "evaluator") {
        command.argv = options.evaluator;
      }
      AddUserEnvironment(options, &command.environment);
      AddThreads(options.worker_count, &command.environment);
    }
  }
  return plan;
}

LocalCluster PlanSingleTask(const SingleTaskOptions& options) {
  LocalCluster plan;
  LocalTask task;
  task.role = RoleName(options.task.role);
  task.index = options.task.index;
  ChildCommand command;
  command.argv = SingleTaskArguments(options, task);
  command.environment = {absl::StrCat("WEIR_TASK_TYPE=", task.role),
                         absl::StrCat("WEIR_TASK_INDEX=", task.index),
                         "WEIR_STOPS_ONCE=1"};
  AddLog(options.log, &command.environment);
  if (!options.cluster_text.empty()) {
    command.environment.push_back(
        absl::StrCat("WEIR_CLUSTER=", options.cluster_text));
  }
  if (!options.command.empty()) {
    AddUserEnvironment(options, &command.environment);
  }
  plan.tasks.push_back(std::move(task));
  plan.commands.push_back(std::move(command));
  return plan;
}

}  // namespace weir
