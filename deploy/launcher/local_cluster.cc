#include "deploy/launcher/local_cluster.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
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

std::vector<std::string> Arguments(const LocalClusterOptions& options,
                                   const std::string& role, bool hosts_chief) {
  const std::string folder = role == "ps"      ? "server/ps"
                             : role == "chief" ? "server/chief"
                                               : "worker";
  std::vector<std::string> argv = {
      absl::StrCat(options.bin_dir, "/", folder, "/weir_", role)};
  if (role == "ps") {
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

}  // namespace

absl::StatusOr<LocalCluster> PlanLocalCluster(
    const LocalClusterOptions& options) {
  nlohmann::json cluster;
  LocalCluster plan;
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
  const std::vector<std::pair<std::string, int>> roles = {
      {"ps", options.ps_count},
      {"chief", options.chief ? 1 : 0},
      {"worker", options.worker_count},
      {"evaluator", options.evaluator ? 1 : 0}};
  for (const auto& [role, count] : roles) {
    for (int i = 0; i < count; ++i) {
      LocalTask task;
      task.role = role;
      task.index = i;
      const bool hosts_chief =
          role == "chief" || (role == "worker" && i == 0 && !options.chief);
      const nlohmann::json config = {{"cluster", cluster},
                                     {"task", {{"type", role}, {"index", i}}}};
      ChildCommand command;
      command.argv = Arguments(options, role, hosts_chief);
      command.environment = {absl::StrCat("TF_CONFIG=", config.dump())};
      command.log_path =
          absl::StrCat(options.workdir, "/logs/", role, "-", i, ".log");
      plan.tasks.push_back(std::move(task));
      plan.commands.push_back(std::move(command));
    }
  }
  return plan;
}

}  // namespace weir
