// weir task: runs one task of a cluster, as the one command of every container
// and of every step of a batch system. weir probe: says whether it is ready.
#include "deploy/launcher/task.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "common/base/exit_code.h"
#include "common/base/identity.h"
#include "common/base/status.h"
#include "deploy/cli/bin_dir.h"
#include "deploy/cli/command.h"
#include "deploy/launcher/slurm_step.h"
#include "proto/task/job_flags.h"

namespace weir {
namespace {

std::string Variable(const std::string& name) {
  // Only the main thread reads the environment, before any other exists.
  const char* value = std::getenv(name.c_str());  // NOLINT
  return value == nullptr ? "" : value;
}

OperatorSources SourcesOfThisProcess() {
  OperatorSources sources;
  sources.variable = Variable;
  sources.host_name = HostName();
  sources.layout = Variable("WEIR_LAYOUT");
  return sources;
}

void AddSourceFlags(CLI::App* app, OperatorSources* sources) {
  app->add_option("--layout", sources->layout,
                  "the roles of a Slurm step's ranks, in order: "
                  "ps=2,chief=1,worker=4; default WEIR_LAYOUT");
  app->add_option("--port_base", sources->port_base,
                  "with --layout: the port of a node's first task; the others "
                  "have the next ones")
      ->check(CLI::Range(1024, kSlurmPortBaseMax))
      ->capture_default_str();
}

absl::StatusOr<int> Probe(const OperatorSources& sources) {
  WEIR_RETURN_IF_ERROR(ProbeTask(sources));
  return kExitOk;
}

}  // namespace

void AddTaskCommand(CLI::App* app, const std::vector<std::string>& words,
                    Command* command) {
  auto options = std::make_shared<TaskOptions>();
  options->sources = SourcesOfThisProcess();
  options->workdir = Variable("WEIR_WORKDIR");
  options->checkpoints = Variable("WEIR_CHECKPOINTS");
  options->command = words;
  options->admin = AdminFlags::FromEnvironment();
  CLI::App* sub = AddSubcommand(
      app, "task",
      "run one task of a cluster: the command of every container. TF_CONFIG, "
      "WEIR_CLUSTER, WEIR_TASK_TYPE, WEIR_TASK_INDEX, JOB_COMPLETION_INDEX, "
      "VC_TASK_INDEX, the host's name or Slurm say which one",
      options, RunTask, command);
  sub->footer("weir task [options] [-- COMMAND ...]");
  options->bin_dir = BinDir();
  AddJobFlags(sub, "--job", &options->job_path, &options->sets,
              &options->data_dir);
  sub->get_option("--job")->required(false)->description(
      "job file; a ps needs none, and a program after -- brings its own");
  sub->add_option("--workdir", options->workdir,
                  "the run's directory, which chief, ps and evaluator share; "
                  "default WEIR_WORKDIR");
  AddCheckpointsFlag(sub, &options->checkpoints);
  AddLogFlags(sub, &options->log);
  AddDeviceFlags(sub, &options->device, &options->device_plugin);
  sub->add_option("--transport", options->transport,
                  "of a worker: auto, grpc or shm")
      ->check(CLI::IsMember({"auto", "grpc", "shm"}))
      ->capture_default_str();
  sub->add_flag("--evaluator_expected", options->evaluator_expected,
                "of the chief: wait for an evaluator's last line");
  sub->add_flag("--allow_older", options->allow_older,
                "of the chief: if the newest checkpoint is damaged, go on from "
                "the one before");
  sub->add_flag("--allow_unguarded", options->allow_unguarded,
                "of the chief: train even if the store of --checkpoints lets "
                "two chiefs write over each other's checkpoints");
  sub->add_option("--grace_seconds", options->grace_seconds,
                  "after SIGTERM: how long the job may take to save itself")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  sub->add_option("--max_restarts", options->max_restarts,
                  "restarts in a row, without ten minutes of work between "
                  "them, after which it ends with the program's code")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  AddAdminFlags(sub, &options->admin);
  sub->get_option("--admin_port")
      ->description(
          "of the task's health, metrics and pages, over HTTP; default 9464, "
          "or none where another task of the host has it");
  AddSourceFlags(sub, &options->sources);
}

void AddProbeCommand(CLI::App* app, Command* command) {
  auto sources = std::make_shared<OperatorSources>(SourcesOfThisProcess());
  CLI::App* sub = AddSubcommand(
      app, "probe",
      "end with 0 if the task that `weir task` runs here is ready: its "
      "program runs, and its port answers if its role has one",
      sources, Probe, command);
  AddSourceFlags(sub, sources.get());
}

}  // namespace weir
