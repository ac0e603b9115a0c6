// weir_evaluator: evaluates a run's checkpoints as they are committed.
//
//   weir_evaluator --job FILE --workdir DIR [--data_dir DIR]
//
// It ends with 0 after the checkpoint that DIR/DONE names, with another code if
// it cannot evaluate that one, with the run's own code when the run ended
// otherwise, and with 143 on SIGTERM.

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/flags/flags.h"
#include "common/objects/any_store.h"
#include "proto/job/job_spec_text.h"
#include "proto/task/job_flags.h"
#include "proto/task/task_main.h"
#include "proto/tensorboard/board.h"
#include "worker/evaluate/evaluation_metrics.h"
#include "worker/evaluate/evaluator.h"

namespace weir {
namespace {

struct Flags {
  std::string job;
  std::string workdir = ".";
  std::string checkpoints;
  std::string data_dir = ".";
  std::vector<std::string> sets;
  BackendOptions backend;
};

absl::Status Follow(const Flags& flags, const Task& task) {
  WEIR_ASSIGN_OR_RETURN(const JobSpec spec, LoadJobSpec(flags.job, flags.sets));
  WEIR_ASSIGN_OR_RETURN(const auto evaluation,
                        CheckpointEvaluation::Create(
                            AnyStore(), spec, flags.data_dir, flags.backend));
  Board::Options curves;
  curves.directory = JoinPath(AbsolutePlace(flags.workdir), "tensorboard/eval");
  Board board(curves);
  EvaluationMetrics metrics;
  const auto evaluate = [&](const std::string& dir) {
    metrics.Begin(dir);
    absl::StatusOr<EvaluationResult> result = evaluation->Run(dir);
    if (result.ok()) {
      metrics.Set(*result);
      board.AddLine(ResultLine(*result));
    }
    return result;
  };
  Evaluator evaluator(AnyStore(), Clock::Real(),
                      PlaceOfRun(flags.workdir, flags.checkpoints),
                      spec.train(), evaluate);
  const AdminScope admin(task.admin);
  if (task.admin != nullptr) {
    task.admin->AddMetrics(
        [&metrics](MetricPage* page) { metrics.AddMetrics(page); });
  }
  return evaluator.Follow([&task] { return task.stop->first() != 0; });
}

void AddFlags(CLI::App* app, Flags* flags) {
  AddJobFlags(app, "--job", &flags->job, &flags->sets, &flags->data_dir);
  AddOption(app, "--workdir", &flags->workdir, "the run's directory");
  AddCheckpointsFlag(app, &flags->checkpoints);
  flags->backend.device = "auto";
  AddDeviceFlags(app, &flags->backend.device, &flags->backend.plugin_path);
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  return weir::TaskMain(
      argc, argv, weir::TaskRole::kEvaluator,
      "evaluates the checkpoints of a run as they are committed",
      weir::AddFlags, weir::Follow);
}
