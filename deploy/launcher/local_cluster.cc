#include "deploy/launcher/local_cluster.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"

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
void AddCheckpointRoot(const std::string& workdir,
                       std::vector<std::string>* argv) {
  if (!workdir.empty()) {
    argv->insert(argv->end(),
                 {"--checkpoint_root", absl::StrCat(workdir, "/checkpoints")});
  }
}

std::vector<std::string> Arguments(const LocalClusterOptions& options,
                                   const std::string& role, bool hosts_chief) {
  std::vector<std::string> argv = {BinaryPath(options.bin_dir, role)};
  if (role == "ps") {
    AddCheckpointRoot(options.workdir, &argv);
    return argv;
  }
  if (role == "worker") {
    argv.insert(argv.end(),
                {"--transport", options.transport, "--channels_per_peer",
                 absl::StrCat(options.channels_per_peer)});
  }
  argv.insert(argv.end(), {"--job", options.job_path, "--workdir",
                           options.workdir, "--data_dir", options.data_dir});
  if (role != "chief") {
    argv.insert(argv.end(), {"--device", options.device});
    if (!options.device_plugin.empty()) {
      argv.insert(argv.end(), {"--device_plugin", options.device_plugin});
    }
  }
  // These are the chief's, so they go to whichever process hosts it. No other
  // worker writes or restores a checkpoint.
  if (hosts_chief) {
    if (options.resume) {
      argv.push_back("--resume");
    }
    if (options.allow_older) {
      argv.push_back("--allow_older");
    }
    if (!options.init_from.empty()) {
      argv.insert(argv.end(), {"--init_from", options.init_from});
    }
    if (options.evaluator) {
      argv.push_back("--evaluator_expected");
    }
  }
  return argv;
}

struct Counts {
  int ps = 1;
  int workers = 1;
  int chiefs = 0;
  int evaluators = 0;
};

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

// Plans tasks with their TF_CONFIG and without a command line.
absl::StatusOr<LocalCluster> PlanTasks(const Counts& counts) {
  nlohmann::json cluster;
  LocalCluster plan;
  WEIR_ASSIGN_OR_RETURN(const auto ps, Addresses(counts.ps));
  WEIR_ASSIGN_OR_RETURN(const auto workers, Addresses(counts.workers));
  cluster["ps"] = ps;
  cluster["worker"] = workers;
  plan.chief_address = workers[0];
  if (counts.chiefs > 0) {
    WEIR_ASSIGN_OR_RETURN(const auto chief, Addresses(1));
    cluster["chief"] = chief;
    plan.chief_address = chief[0];
  }
  // Tasks are started in this order. The evaluator serves nobody, so it needs
  // no address; TF_CONFIG names it by its task alone.
  const std::vector<std::pair<std::string, int>> roles = {
      {"ps", counts.ps},
      {"chief", counts.chiefs},
      {"worker", counts.workers},
      {"evaluator", counts.evaluators}};
  for (const auto& [role, count] : roles) {
    for (int i = 0; i < count; ++i) {
      LocalTask task;
      task.role = role;
      task.index = i;
      const nlohmann::json config = {{"cluster", cluster},
                                     {"task", {{"type", role}, {"index", i}}}};
      ChildCommand command;
      command.environment = Environment(config.dump());
      plan.tasks.push_back(std::move(task));
      plan.commands.push_back(std::move(command));
    }
  }
  return plan;
}

std::string LogPath(const std::string& workdir, const LocalTask& task) {
  return absl::StrCat(workdir, "/logs/", task.role, "-", task.index, ".log");
}

// Returns the command line of the chief of a job with user commands.
std::vector<std::string> ChiefArguments(const CommandClusterOptions& options) {
  std::vector<std::string> argv = {BinaryPath(options.bin_dir, "chief"),
                                   "--workdir", options.workdir};
  if (options.resume) {
    argv.push_back("--resume");
  }
  if (options.allow_older) {
    argv.push_back("--allow_older");
  }
  argv.insert(argv.end(), options.chief_flags.begin(),
              options.chief_flags.end());
  return argv;
}

// Adds what a user's program is told beside TF_CONFIG.
void AddUserEnvironment(const CommandClusterOptions& options,
                        std::vector<std::string>* environment) {
  environment->push_back(absl::StrCat("WEIR_TRANSPORT=", options.transport));
  if (!options.workdir.empty()) {
    environment->push_back(absl::StrCat("WEIR_WORKDIR=", options.workdir));
  }
  // Python buffers what it prints to a pipe, and a program that is killed would
  // lose its last lines. A user who has set the variable knows better.
  // Only the main thread reads or changes the environment.
  if (std::getenv("PYTHONUNBUFFERED") == nullptr) {  // NOLINT
    environment->push_back("PYTHONUNBUFFERED=1");
  }
  // Copies that each take every core hold each other up.
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {  // NOLINT
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    environment->push_back(absl::StrCat(
        "OMP_NUM_THREADS=", std::max(1, cores / options.worker_count)));
  }
}

}  // namespace

absl::StatusOr<LocalCluster> PlanLocalCluster(
    const LocalClusterOptions& options) {
  WEIR_ASSIGN_OR_RETURN(
      LocalCluster plan,
      PlanTasks({.ps = options.ps_count,
                 .workers = options.worker_count,
                 .chiefs = static_cast<int>(options.chief),
                 .evaluators = static_cast<int>(options.evaluator)}));
  for (size_t i = 0; i < plan.tasks.size(); ++i) {
    const LocalTask& task = plan.tasks[i];
    // Exactly one process hosts the chief: its own task or else worker 0.
    const bool hosts_chief =
        task.role == "chief" ||
        (task.role == "worker" && task.index == 0 && !options.chief);
    plan.commands[i].argv = Arguments(options, task.role, hosts_chief);
    plan.commands[i].log_path = LogPath(options.workdir, task);
  }
  return plan;
}

absl::StatusOr<LocalCluster> PlanCommandCluster(
    const CommandClusterOptions& options) {
  WEIR_ASSIGN_OR_RETURN(
      LocalCluster plan,
      PlanTasks({.ps = options.ps_count,
                 .workers = options.worker_count,
                 .chiefs = static_cast<int>(options.chief),
                 .evaluators = static_cast<int>(!options.evaluator.empty())}));
  for (size_t i = 0; i < plan.tasks.size(); ++i) {
    const std::string& role = plan.tasks[i].role;
    ChildCommand& command = plan.commands[i];
    if (!options.workdir.empty()) {
      command.log_path = LogPath(options.workdir, plan.tasks[i]);
    }
    if (role == "ps") {
      command.argv = {BinaryPath(options.bin_dir, role)};
      AddCheckpointRoot(options.workdir, &command.argv);
    } else if (role == "chief") {
      command.argv = ChiefArguments(options);
    } else {
      command.argv = options.worker;
      if (role == "evaluator") {
        command.argv = options.evaluator;
      }
      AddUserEnvironment(options, &command.environment);
    }
  }
  return plan;
}

}  // namespace weir
