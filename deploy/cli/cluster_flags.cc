#include "deploy/cli/cluster_flags.h"

#include "deploy/cli/bin_dir.h"
#include "proto/task/job_flags.h"
#include "proto/task/security_flags.h"

namespace weir {

void AddClusterFlags(CLI::App* app, ClusterOptions* options,
                     int* max_restarts) {
  options->bin_dir = BinDir();
  AddOption(app, "--ps", &options->ps_count, "parameter servers; default 1")
      .Range(1, 64);
  AddOption(app, "--workers", &options->worker_count, "workers; default 1")
      .Range(1, 64);
  AddFlag(app, "--chief", &options->chief,
          "run the chief, who writes checkpoints, as a task of its own");
  AddOption(app, "--workdir", &options->workdir,
            "the run's directory; default runs/<name>-<time>");
  AddCheckpointsFlag(app, &options->checkpoints);
  AddOption(app, "--max_restarts", max_restarts,
            "times that a task that ended with 128 or above is started "
            "again")
      .NonNegative()
      .ShowDefault();
  AddOption(app, "--transport", &options->transport,
            "between workers and ps: auto takes shared memory")
      .OneOf({"auto", "grpc", "shm"})
      .ShowDefault();
  AddFlag(app, "--resume", &options->resume,
          "the chief goes on from the newest checkpoint");
  AddFlag(app, "--allow_older", &options->allow_older,
          "with --resume: if it is damaged, from the one before");
  AddFlag(app, "--allow_unguarded", &options->allow_unguarded,
          "with --checkpoints: train even if the store lets two chiefs "
          "write over each other's checkpoints");
  options->admin = AdminFlags::FromEnvironment();
  AddAdminFlags(app, &options->admin);
  FindFlag(app, "--admin_port")
      .Describe(
          "serve the chief's page, health and metrics here, over HTTP; 0 takes "
          "a free port; the link is shown");
  AddLogFlags(app, &options->log);
  options->security = Security::Options::FromEnvironment();
  AddSecurityFlags(app, &options->security);
}

}  // namespace weir
