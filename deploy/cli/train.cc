// weir train JOB: see deploy/launcher/train.h.
#include "deploy/launcher/train.h"

#include <memory>

#include "common/base/status.h"
#include "deploy/cli/cluster_flags.h"
#include "deploy/cli/command.h"
#include "proto/task/job_flags.h"
#include "worker/compute/factory.h"

namespace weir {
namespace {

absl::StatusOr<int> Train(const TrainOptions& options) {
  // A wrong device is found before a working directory is made or a process
  // started.
  BackendOptions backend;
  backend.device = options.device;
  WEIR_RETURN_IF_ERROR(backend.Validate());
  return RunTraining(options);
}

}  // namespace

void AddTrainCommand(CLI::App* app, Command* command) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* train = AddSubcommand(
      app, "train", "train a job on a local cluster of real processes", options,
      Train, command);
  AddJobFlags(train, "job", &options->job_path, &options->sets,
              &options->data_dir);
  AddDeviceFlags(train, &options->device, &options->device_plugin);
  AddClusterFlags(train, options.get(), &options->max_restarts);
  for (const char* count : {"--ps", "--workers"}) {
    Flag flag = FindFlag(train, count);
    flag.Describe(flag.help() + ", or as many as before with --resume");
  }
  AddFlag(train, "--evaluator,!--noevaluator", &options->evaluator,
          "follow checkpoints when the job has an evaluation section");
  AddOption(train, "--init_from", &options->init_from,
            "initial values, a safetensors file");
  AddOption(train, "--channels_per_peer", &options->channels_per_peer,
            "streams of a worker to each ps; default one over gRPC, and in "
            "shared memory one for every four processors, at most 8")
      .Range(1, 16);
}

}  // namespace weir
