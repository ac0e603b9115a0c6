// weir_evaluator: evaluates a run's checkpoints as they are committed.
//
//   weir_evaluator --job FILE --workdir DIR [--data_dir DIR]
//
// It ends with 0 after the checkpoint that DIR/DONE names, with the run's own
// code when the run ended otherwise, and with 143 on SIGTERM.
#include <signal.h>

#include <chrono>
#include <thread>

#include "CLI/CLI.hpp"
#include "common/base/exit_code.h"
#include "common/base/failpoint.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "proto/job/job_spec_text.h"
#include "proto/job/tf_config.h"
#include "worker/evaluate/evaluator.h"

namespace weir {
namespace {

constexpr auto kPollEvery = std::chrono::milliseconds(200);

volatile sig_atomic_t stop_signal = 0;

// The loop looks at the flag between two checkpoints.
void NoteSignal(int signal) { stop_signal = signal; }

struct Flags {
  std::string job;
  std::string workdir = ".";
  std::string data_dir = ".";
  std::vector<std::string> sets;
  BackendOptions backend;
};

absl::Status Follow(const Flags& flags) {
  WEIR_RETURN_IF_ERROR(InitFailpointsFromEnv());
  // The evaluator stands outside the cluster and needs nothing of TF_CONFIG.
  // But a malformed one is an error here as in every other program.
  ClusterSources sources = ClusterSources::FromEnv();
  sources.task_required = false;
  WEIR_RETURN_IF_ERROR(ResolveCluster(sources).status());
  WEIR_ASSIGN_OR_RETURN(const JobSpec spec, LoadJobSpec(flags.job, flags.sets));
  WEIR_ASSIGN_OR_RETURN(
      const auto evaluation,
      CheckpointEvaluation::Create(Files::Real(), spec, flags.data_dir,
                                   flags.backend));
  Evaluator evaluator(
      Files::Real(), Clock::Real(), flags.workdir,
      [&evaluation](const std::string& dir) { return evaluation->Run(dir); });
  while (stop_signal == 0) {
    // First, so that a run which failed is not evaluated any further.
    WEIR_RETURN_IF_ERROR(evaluator.Ended());
    const absl::StatusOr<bool> done = evaluator.Poll();
    // A damaged checkpoint is no reason to end: the next one may be whole.
    if (!done.ok()) {
      LOG_ERROR("{}", std::string(done.status().message()));
    } else if (*done) {
      return absl::OkStatus();
    }
    std::this_thread::sleep_for(kPollEvery);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::Flags flags;
  flags.backend.device = "auto";
  CLI::App app("Evaluates the checkpoints of a run as they are committed.");
  app.add_option("--job", flags.job, "job file")->required();
  app.add_option("--workdir", flags.workdir, "the run's directory");
  app.add_option("--data_dir", flags.data_dir, "where data paths begin");
  app.add_option("--set", flags.sets, "path=value, overrides the job file");
  app.add_option("--device", flags.backend.device,
                 "auto, cpu, cuda or cuda:N; of several the first")
      ->capture_default_str();
  app.add_option("--device_plugin", flags.backend.plugin_path,
                 "file of the GPU's plug-in; default beside this program");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? weir::kExitOk : weir::kExitUsage;
  }
  weir::InitLogging("evaluator/0");
  struct sigaction action = {};
  action.sa_handler = weir::NoteSignal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  const absl::Status status = weir::Follow(flags);
  if (!status.ok()) {
    LOG_ERROR("{}", std::string(status.message()));
    return weir::ExitCodeFor(status);
  }
  return weir::stop_signal == 0 ? 0 : 128 + weir::stop_signal;
}
