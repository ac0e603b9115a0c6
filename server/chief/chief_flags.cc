#include "server/chief/chief_flags.h"

#include <CLI/CLI.hpp>
#include <filesystem>

namespace weir {

void AddChiefFlags(CLI::App* app, ChiefFlags* flags) {
  app->add_option("--workdir", flags->workdir,
                  "the run's directory, the same on every host");
  app->add_option("--init_from", flags->init_from,
                  "the chief's: start from these values (safetensors, tensors "
                  "by name)");
  app->add_flag("--resume", flags->resume,
                "the chief's: go on from the newest checkpoint");
  app->add_flag("--allow_older", flags->allow_older,
                "the chief's: take the checkpoint before, when the newest is "
                "damaged");
  app->add_flag("--evaluator_expected", flags->evaluator_expected,
                "the chief's: at the end wait for an evaluator");
}

ChiefServer::Options ChiefOptions(const ChiefFlags& flags, const JobSpec& spec,
                                  const Task& task, Transport* transport) {
  const ClusterSpec& cluster = task.cluster;
  ChiefServer::Options options;
  options.runner.spec = spec;
  options.runner.ps_addresses = cluster.ps_addresses();
  options.runner.worker_count = cluster.worker_count();
  options.runner.cluster_fingerprint = cluster.fingerprint();
  std::string workdir = flags.workdir;
  if (workdir.empty()) {
    workdir = ".";
  }
  options.runner.workdir = std::filesystem::absolute(workdir).string();
  options.access = AccessOptions(task);
  options.access.audit_path = options.runner.workdir + "/audit.jsonl";
  options.runner.resume = flags.resume;
  options.runner.allow_older = flags.allow_older;
  options.runner.init_from = flags.init_from;
  options.runner.evaluator_expected = flags.evaluator_expected;
  options.runner.transport = transport;
  options.address = cluster.bind_address();
  return options;
}

}  // namespace weir
