#include "server/chief/chief_flags.h"

#include "common/flags/flags.h"
#include "common/objects/any_store.h"
#include "proto/task/job_flags.h"

namespace weir {

void AddChiefFlags(CLI::App* app, ChiefFlags* flags) {
  AddOption(app, "--workdir", &flags->workdir,
            "the run's directory, the same on every host");
  AddCheckpointsFlag(app, &flags->checkpoints);
  AddFlag(app, "--allow_unguarded", &flags->allow_unguarded,
          "the chief's: train even if the store of --checkpoints lets "
          "two chiefs write over each other's checkpoints");
  AddOption(app, "--init_from", &flags->init_from,
            "the chief's: start from these values (safetensors, tensors "
            "by name)");
  AddFlag(app, "--resume", &flags->resume,
          "the chief's: go on from the newest checkpoint");
  AddFlag(app, "--allow_older", &flags->allow_older,
          "the chief's: take the checkpoint before, when the newest is "
          "damaged");
  AddFlag(app, "--evaluator_expected", &flags->evaluator_expected,
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
  options.access = AccessOptions(task);
  const std::string local = AbsolutePlace(workdir);
  options.access.audit_path = JoinPath(local, "audit.jsonl");
  options.runner.tensorboard = JoinPath(local, "tensorboard/train");
  options.runner.files = AnyStore();
  options.runner.workdir = PlaceOfRun(workdir, flags.checkpoints);
  options.runner.allow_unguarded = flags.allow_unguarded;
  options.runner.resume = flags.resume;
  options.runner.allow_older = flags.allow_older;
  options.runner.init_from = flags.init_from;
  options.runner.evaluator_expected = flags.evaluator_expected;
  options.runner.transport = transport;
  options.address = cluster.bind_address();
  return options;
}

}  // namespace weir
