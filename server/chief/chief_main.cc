// weir_chief: makes the job, commits its checkpoints, ends it.
//
//   TF_CONFIG=... weir_chief --job FILE --workdir DIR [--resume]
//   TF_CONFIG=... weir_chief --workdir DIR [--checkpoint_every_seconds 60]
//
// The second form is for programs of the SDK, which bring the job.
//
// Exit codes: common/base/exit_code.h; 143 and 130 after a checkpoint on
// SIGTERM and SIGINT.
#include <grpc/support/log.h>
#include <pthread.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cc/transport/grpc_transport.h"
#include "common/base/exit_code.h"
#include "common/base/failpoint.h"
#include "common/base/logging.h"
#include "common/base/malloc_settings.h"
#include "common/base/status.h"
#include "proto/job/job_spec_text.h"
#include "proto/job/tf_config.h"
#include "server/chief/chief_server.h"

namespace weir {
namespace {

struct Flags {
  std::string job;  // empty: the workers bring it
  std::vector<std::string> sets;
  std::string workdir;
  std::string data_dir;  // the chief reads no data
  std::string init_from;
  std::string cluster;
  std::string task_index;
  std::string address;
  bool resume = false;
  bool allow_older = false;
  bool evaluator_expected = false;
  // Without a job file, which has them.
  std::optional<uint64_t> checkpoint_every_steps;
  std::optional<double> checkpoint_every_seconds;
  std::optional<uint32_t> keep;
};

constexpr double kCheckpointEverySeconds = 60.0;
constexpr uint32_t kKeep = 5;

// Makes what JobState wants of a spec from the flags of an SDK job.
absl::StatusOr<JobSpec> JobOfFlags(const Flags& flags) {
  if (!flags.sets.empty() || !flags.init_from.empty() ||
      flags.evaluator_expected) {
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

absl::StatusOr<ClusterSpec> FindCluster(const Flags& flags) {
  ClusterSources sources = ClusterSources::FromEnv();
  sources.flag_cluster = flags.cluster;
  sources.flag_task_index = flags.task_index;
  if (!flags.cluster.empty()) {
    sources.flag_task_type = "chief";
  }
  WEIR_ASSIGN_OR_RETURN(ClusterSpec cluster, ResolveCluster(sources));
  if (!cluster.task().has_value()) {
    return absl::InvalidArgumentError(
        "no cluster is given; set TF_CONFIG, or --cluster");
  }
  if (cluster.task()->role != TaskRole::kChief) {
    return absl::InvalidArgumentError(
        absl::StrCat("this task is ", cluster.task()->ToString(),
                     "; weir_chief runs the chief"));
  }
  if (cluster.ps_count() == 0 || cluster.worker_count() == 0) {
    return absl::InvalidArgumentError(
        "the chief was told of no ps or no worker (an operator with dynamic "
        "workers tells it nothing): give the cluster with --cluster");
  }
  return cluster;
}

absl::StatusOr<std::unique_ptr<ChiefServer>> StartServer(const Flags& flags,
                                                         Transport* transport) {
  WEIR_ASSIGN_OR_RETURN(const ClusterSpec cluster, FindCluster(flags));
  ChiefServer::Options options;
  options.runner.sdk_job = flags.job.empty();
  WEIR_ASSIGN_OR_RETURN(options.runner.spec, options.runner.sdk_job
                                                 ? JobOfFlags(flags)
                                                 : JobOfFile(flags));
  options.runner.ps_addresses = cluster.ps_addresses();
  options.runner.worker_count = cluster.worker_count();
  options.runner.cluster_fingerprint = cluster.fingerprint();
  options.runner.workdir = std::filesystem::absolute(flags.workdir).string();
  options.runner.resume = flags.resume;
  options.runner.allow_older = flags.allow_older;
  options.runner.init_from = flags.init_from;
  options.runner.evaluator_expected = flags.evaluator_expected;
  options.runner.transport = transport;
  options.address =
      flags.address.empty() ? cluster.bind_address() : flags.address;
  return ChiefServer::Start(std::move(options));
}

int Serve(const Flags& flags) {
  if (const absl::Status status = InitFailpointsFromEnv(); !status.ok()) {
    std::fprintf(stderr, "weir_chief: %s\n",
                 std::string(status.message()).c_str());
    return kExitUsage;
  }
  InitLogging("chief/0");
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT}) {
    sigaddset(&signals, signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before any thread exists

  const std::unique_ptr<Transport> transport = MakeGrpcTransport();
  auto chief = StartServer(flags, transport.get());
  if (!chief.ok()) {
    LOG_ERROR("{}", std::string(chief.status().message()));
    return ExitCodeFor(chief.status());
  }
  int ended_by = 0;
  std::optional<absl::Status> status;
  while (!status.has_value()) {
    status = (*chief)->WaitFor(std::chrono::milliseconds(50));
    timespec now = {};
    const int signal = sigtimedwait(&signals, nullptr, &now);
    if (signal > 0 && ended_by == 0) {
      ended_by = signal;
      (*chief)->RequestStop(signal == SIGTERM ? "SIGTERM" : "SIGINT");
    } else if (signal > 0) {
      // Nothing is cleaned up: the ps stay, and the next chief adopts them.
      LOG_WARN("a second signal: ending without a checkpoint");
      _exit(128 + signal);
    }
  }
  int code = ExitCodeFor(*status);
  if (status->ok()) {
    LOG_INFO("the job is done");
  } else {
    LOG_ERROR("{}", std::string(status->message()));
    // Any other error is the reason of the end, whatever signal came after it.
    if (ended_by != 0 && status->code() == absl::StatusCode::kCancelled) {
      code = 128 + ended_by;
    }
  }
  chief->reset();
  return code;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::SetMallocForBulk();
  // gRPC's errors come back as statuses; its own log would say them twice.
  gpr_set_log_function([](gpr_log_func_args* line) {
    LOG_DEBUG("{}:{} {}", line->file, line->line, line->message);
  });
  weir::Flags flags;
  CLI::App app("weir_chief: makes a job, checkpoints it and ends it");
  app.add_option("--job", flags.job,
                 "job file; without one the workers, programs of the SDK, "
                 "bring the job");
  app.add_option("--set", flags.sets, "path=value, overrides the job file");
  app.add_option("--workdir", flags.workdir,
                 "the run's directory, the same on every host")
      ->required();
  app.add_option("--data_dir", flags.data_dir,
                 "taken for the other tasks' sake; the chief reads no data");
  app.add_flag("--resume", flags.resume, "go on from the newest checkpoint");
  app.add_flag("--allow_older", flags.allow_older,
               "take the checkpoint before, when the newest is damaged");
  app.add_option("--init_from", flags.init_from,
                 "start from these values (safetensors, tensors by name)");
  app.add_option("--checkpoint_every_steps", flags.checkpoint_every_steps,
                 "without --job: steps of sync, else pushes of all workers, "
                 "between checkpoints");
  app.add_option("--checkpoint_every_seconds", flags.checkpoint_every_seconds,
                 "without --job: default 60, or none with "
                 "--checkpoint_every_steps")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--keep", flags.keep,
                 "without --job: newest checkpoints that stay; default 5")
      ->check(CLI::Range(1, 1000000));
  app.add_flag("--evaluator_expected", flags.evaluator_expected,
               "at the end wait for an evaluator");
  app.add_option(
      "--cluster", flags.cluster,
      "\"ps=host:port,...;worker=host:port,...;chief=host:port\"; default "
      "TF_CONFIG");
  app.add_option("--task_index", flags.task_index, "0; default TF_CONFIG's");
  app.add_option("--address", flags.address,
                 "listen here in place of the own address in the cluster");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? weir::kExitOk : weir::kExitUsage;
  }
  return weir::Serve(flags);
}
