// weir_chief: makes the job, commits its checkpoints, ends it.
//
//   TF_CONFIG=... weir_chief --job FILE --workdir DIR [--resume]
//   TF_CONFIG=... weir_chief --workdir DIR [--checkpoint_every_seconds 60]
//
// The second form is for programs of the SDK, which bring the job.
//
// Exit codes: common/base/exit_code.h; 143 and 130 after a checkpoint on
// SIGTERM and SIGINT.
#include <signal.h>

#include <optional>
#include <string>
#include <vector>

#include "client/cc/transport/grpc_transport.h"
#include "common/base/status.h"
#include "common/flags/flags.h"
#include "proto/job/job_spec_text.h"
#include "proto/task/admin_file.h"
#include "proto/task/job_flags.h"
#include "proto/task/task_main.h"
#include "server/chief/chief_flags.h"
#include "server/chief/chief_pages.h"

namespace weir {
namespace {

struct Flags {
  std::string job;  // empty: the workers bring it
  std::vector<std::string> sets;
  ChiefFlags chief;
  std::string data_dir;  // the chief reads no data
  std::string address;
  // Without a job file, which has them.
  std::optional<uint64_t> checkpoint_every_steps;
  std::optional<double> checkpoint_every_seconds;
  std::optional<uint32_t> keep;
};

constexpr double kCheckpointEverySeconds = 60.0;
constexpr uint32_t kKeep = 5;

// Makes what JobState wants of a spec from the flags of an SDK job.
absl::StatusOr<JobSpec> JobOfFlags(const Flags& flags) {
  if (!flags.sets.empty() || !flags.chief.init_from.empty() ||
      flags.chief.evaluator_expected) {
    return absl::InvalidArgumentError(
        "--set, --init_from and --evaluator_expected need a job file: add "
        "--job");
  }
  JobSpec spec;
  Checkpoint* const checkpoint = spec.mutable_checkpoint();
  // Without any word on it a program's work is saved once a minute.
  double every_seconds = kCheckpointEverySeconds;
  if (flags.checkpoint_every_steps.has_value()) {
    every_seconds = 0.0;
  }
  checkpoint->set_every_steps(flags.checkpoint_every_steps.value_or(0));
  checkpoint->set_every_seconds(
      flags.checkpoint_every_seconds.value_or(every_seconds));
  checkpoint->set_keep(flags.keep.value_or(kKeep));
  return spec;
}

// Reads the job file.
absl::StatusOr<JobSpec> JobOfFile(const Flags& flags) {
  if (flags.checkpoint_every_steps.has_value() ||
      flags.checkpoint_every_seconds.has_value() || flags.keep.has_value()) {
    return absl::InvalidArgumentError(
        "the job file says when checkpoints are written: use --set "
        "checkpoint.every_steps=..., every_seconds or keep");
  }
  return LoadJobSpec(flags.job, flags.sets);
}

absl::Status Serve(const Flags& flags, const Task& task) {
  const ClusterSpec& cluster = task.cluster;
  if (cluster.ps_count() == 0 || cluster.worker_count() == 0) {
    return absl::InvalidArgumentError(
        "the chief was told of no ps or no worker (an operator with dynamic "
        "workers tells it nothing): give the cluster with --cluster");
  }
  const bool is_sdk_job = flags.job.empty();
  WEIR_ASSIGN_OR_RETURN(const JobSpec spec,
                        is_sdk_job ? JobOfFlags(flags) : JobOfFile(flags));
  const std::unique_ptr<Transport> transport =
      MakeGrpcTransport({.security = task.security});
  ChiefServer::Options options =
      ChiefOptions(flags.chief, spec, task, transport.get());
  options.runner.sdk_job = is_sdk_job;
  if (!flags.address.empty()) {
    options.address = flags.address;
  }
  WEIR_ASSIGN_OR_RETURN(const auto chief, ChiefServer::Start(options));
  const AdminScope admin(task.admin);
  AddChiefPages(chief->runner(), task.admin);
  const AdminFile admin_file(flags.chief.workdir, task.admin);
  // A second signal leaves the ps as they are, and the next chief adopts them.
  task.stop->OnStop([&chief](int signal) {
    chief->RequestStop(signal == SIGTERM ? "SIGTERM" : "SIGINT");
  });
  const absl::Status status = chief->Wait();
  task.stop->OnStop({});
  return status;
}

void AddFlags(CLI::App* app, Flags* flags) {
  AddJobFlags(app, "--job", &flags->job, &flags->sets, &flags->data_dir);
  FindFlag(app, "--job")
      .Required(false)
      .Describe(
          "job file; without one the workers, programs of the SDK, bring the "
          "job");
  AddChiefFlags(app, &flags->chief);
  FindFlag(app, "--workdir").Required();
  AddOption(app, "--checkpoint_every_steps", &flags->checkpoint_every_steps,
            "without --job: steps of sync, else pushes of all workers, "
            "between checkpoints");
  AddOption(app, "--checkpoint_every_seconds", &flags->checkpoint_every_seconds,
            "without --job: default 60, or none with "
            "--checkpoint_every_steps")
      .NonNegative();
  AddOption(app, "--keep", &flags->keep,
            "without --job: newest checkpoints that stay; default 5")
      .Range(1, 1000000);
  AddOption(app, "--address", &flags->address,
            "listen here in place of the own address in the cluster");
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  return weir::TaskMain(argc, argv, weir::TaskRole::kChief,
                        "makes a job, checkpoints it and ends it",
                        weir::AddFlags, weir::Serve);
}
