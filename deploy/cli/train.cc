// weir train JOB: see deploy/launcher/train.h.
#include "deploy/launcher/train.h"

#include <memory>

#include "common/base/status.h"
#include "deploy/cli/bin_dir.h"
#include "deploy/cli/command.h"
#include "worker/compute/factory.h"

namespace weir {

void AddTrainCommand(CLI::App* app, Command* command) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* train = app->add_subcommand(
      "train", "train a job on a local cluster of real processes");
  train->add_option("job", options->job_path, "job file")->required();
  train
      ->add_option(
          "--ps", options->ps_count,
          "parameter servers (default 1; with --resume as many as before)")
      ->check(CLI::Range(1, 64));
  train->add_option("--workers", options->worker_count, "workers (the same)")
      ->check(CLI::Range(1, 64));
  train->add_flag("--chief", options->chief,
                  "run the chief as a task of its own, not in worker 0");
  train->add_flag("--evaluator,!--noevaluator", options->evaluator,
                  "follow checkpoints when the job has an evaluation section");
  train->add_option("--workdir", options->workdir,
                    "the run's directory; default runs/<job>-<time>");
  train->add_flag("--resume", options->resume,
                  "go on from the newest checkpoint");
  train->add_flag("--allow_older", options->allow_older,
                  "with --resume: if it is damaged, from the one before");
  train->add_option("--max_restarts", options->max_restarts,
                    "times that one dead task is started again; default 20");
  train->add_option("--data_dir", options->data_dir,
                    "where the job's data paths begin");
  train->add_option("--init_from", options->init_from,
                    "initial values, a safetensors file");
  train
      ->add_option("--transport", options->transport,
                   "between workers and ps: auto takes shared memory; default "
                   "auto")
      ->check(CLI::IsMember({"auto", "grpc", "shm"}));
  train
      ->add_option("--channels_per_peer", options->channels_per_peer,
                   "gRPC connections of a worker to each ps; default 1")
      ->check(CLI::Range(1, 16));
  train->add_option("--device", options->device,
                    "where workers compute: auto (a GPU if there is one), cpu, "
                    "cuda, cuda:N, or several GPUs a worker: cuda:0,1 or "
                    "cuda:all; default auto");
  train->add_option("--device_plugin", options->device_plugin,
                    "file of the GPU's plug-in; default beside the programs");
  train->add_option("--set", options->sets,
                    "path=value, overrides a field of the job");
  train->callback([options, command] {
    options->bin_dir = BinDir();
    *command = [options]() -> absl::StatusOr<int> {
      // A wrong device is found before a working directory is made or a
      // process started.
      BackendOptions backend;
      backend.device = options->device;
      WEIR_RETURN_IF_ERROR(backend.Validate());
      return RunTraining(*options);
    };
  });
}

}  // namespace weir
