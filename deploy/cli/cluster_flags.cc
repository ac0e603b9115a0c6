#include "deploy/cli/cluster_flags.h"

#include "deploy/cli/bin_dir.h"
#include "proto/task/job_flags.h"
#include "proto/task/security_flags.h"

namespace weir {

void AddClusterFlags(CLI::App* app, ClusterOptions* options,
                     int* max_restarts) {
  options->bin_dir = BinDir();
  app->add_option("--ps", options->ps_count, "parameter servers; default 1")
      ->check(CLI::Range(1, 64));
  app->add_option("--workers", options->worker_count, "workers; default 1")
      ->check(CLI::Range(1, 64));
  app->add_flag("--chief", options->chief,
                "run the chief, who writes checkpoints, as a task of its own");
  app->add_option("--workdir", options->workdir,
                  "the run's directory; default runs/<name>-<time>");
  AddCheckpointsFlag(app, &options->checkpoints);
  app->add_option("--max_restarts", *max_restarts,
                  "times that a task that ended with 128 or above is started "
                  "again")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app->add_option("--transport", options->transport,
                  "between workers and ps: auto takes shared memory")
      ->check(CLI::IsMember({"auto", "grpc", "shm"}))
      ->capture_default_str();
  app->add_flag("--resume", options->resume,
                "the chief goes on from the newest checkpoint");
  app->add_flag("--allow_older", options->allow_older,
                "with --resume: if it is damaged, from the one before");
  app->add_flag("--allow_unguarded", options->allow_unguarded,
                "with --checkpoints: train even if the store lets two chiefs "
                "write over each other's checkpoints");
  options->admin = AdminFlags::FromEnvironment();
  AddAdminFlags(app, &options->admin);
  app->get_option("--admin_port")
      ->description(
          "serve the chief's page, health and metrics here, over HTTP; 0 takes "
          "a free port; the link is shown");
  AddLogFlags(app, &options->log);
  options->security = Security::Options::FromEnvironment();
  AddSecurityFlags(app, &options->security);
}

}  // namespace weir
