// weir config check: what TF_CONFIG, the environment, flags and a job file
// mean.
#include <cstdio>
#include <memory>

#include "common/status.h"
#include "deploy/cli/command.h"
#include "proto/job_spec_io.h"
#include "proto/tf_config.h"

namespace weir {
namespace {

struct Options {
  std::string job;
  std::vector<std::string> sets;
  ClusterSources sources = ClusterSources::FromEnv();
};

absl::StatusOr<int> Check(const Options& options) {
  WEIR_ASSIGN_OR_RETURN(const ClusterSpec cluster,
                        ResolveCluster(options.sources));
  std::printf("%s\n", cluster.ToString().c_str());
  if (!options.job.empty()) {
    WEIR_ASSIGN_OR_RETURN(const JobSpec spec,
                          LoadJobSpec(options.job, options.sets));
    std::printf("job %s, hash %s\n", spec.name().c_str(),
                JobSpecHash(spec).c_str());
  }
  return 0;
}

}  // namespace

void AddConfigCommand(CLI::App* app, Command* command) {
  auto options = std::make_shared<Options>();
  CLI::App* config = app->add_subcommand("config", "check the configuration");
  config->require_subcommand(1);
  CLI::App* check = config->add_subcommand(
      "check", "print the cluster and its fingerprint, or what is wrong");
  check->add_option("--job", options->job, "job file to check too");
  check->add_option("--set", options->sets, "path=value, overrides the job");
  check->add_option("--cluster", options->sources.flag_cluster,
                    "ps=host:port,...;worker=...");
  check->add_option("--task_type", options->sources.flag_task_type, "role");
  check->add_option("--task_index", options->sources.flag_task_index, "index");
  check->callback([options, command] {
    options->sources.task_required = false;
    *command = [options] { return Check(*options); };
  });
}

}  // namespace weir
