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
  AddOption(app, "--layout", &sources->layout,
            "the roles of a Slurm step's ranks, in order: "
            "ps=2,chief=1,worker=4; default WEIR_LAYOUT");
  AddOption(app, "--port_base", &sources->port_base,
            "with --layout: the port of a node's first task; the others "
            "have the next ones")
      .Range(1024, kSlurmPortBaseMax)
      .ShowDefault();
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
  SetFooter(sub, "weir task [options] [-- COMMAND ...]");
  options->bin_dir = BinDir();
  AddJobFlags(sub, "--job", &options->job_path, &options->sets,
              &options->data_dir);
  FindFlag(sub, "--job")
      .Required(false)
      .Describe(
          "job file; a ps needs none, and a program after -- brings its own");
  AddOption(sub, "--workdir", &options->workdir,
            "the run's directory, which chief, ps and evaluator share; "
            "default WEIR_WORKDIR");
  AddCheckpointsFlag(sub, &options->checkpoints);
  AddLogFlags(sub, &options->log);
  AddDeviceFlags(sub, &options->device, &options->device_plugin);
  AddOption(sub, "--transport", &options->transport,
            "of a worker: auto, grpc or shm")
      .OneOf({"auto", "grpc", "shm"})
      .ShowDefault();
  AddFlag(sub, "--evaluator_expected", &options->evaluator_expected,
          "of the chief: wait for an evaluator's last line");
  AddFlag(sub, "--allow_older", &options->allow_older,
          "of the chief: if the newest checkpoint is damaged, go on from "
          "the one before");
  AddFlag(sub, "--allow_unguarded", &options->allow_unguarded,
          "of the chief: train even if the store of --checkpoints lets "
          "two chiefs write over each other's checkpoints");
  AddOption(sub, "--grace_seconds", &options->grace_seconds,
            "after SIGTERM: how long the job may take to save itself")
      .Range(0.0, 3600.0)
      .ShowDefault();
  AddOption(sub, "--max_restarts", &options->max_restarts,
            "restarts in a row, without ten minutes of work between "
            "them, after which it ends with the program's code")
      .Range(0, 1000000)
      .ShowDefault();
  AddAdminFlags(sub, &options->admin);
  FindFlag(sub, "--admin_port")
      .Describe(
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
