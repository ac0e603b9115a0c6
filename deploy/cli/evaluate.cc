// weir evaluate and weir predict: run one checkpoint by the evaluator's code.
//
//   weir evaluate JOB --checkpoint DIR            prints one line of JSON
//   weir predict JOB --checkpoint DIR --out FILE  writes one line of JSON for
//       each sample: {"index", "label", "outputs"}, and for a model of classes
//       also "prediction" and "probabilities"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "common/objects/any_store.h"
#include "deploy/cli/command.h"
#include "nlohmann/json.hpp"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/job/job_spec_text.h"
#include "proto/task/job_flags.h"
#include "worker/evaluate/evaluation.h"

namespace weir {
namespace {

struct Options {
  std::string job;
  std::string checkpoint;
  std::string data_dir = ".";
  std::string out;
  std::vector<std::string> sets;
  BackendOptions backend;
};

// What is evaluated, ready to run.
struct Opened {
  JobSpec spec;
  std::unique_ptr<CheckpointEvaluation> evaluation;
  std::string checkpoint;  // its folder
};

absl::StatusOr<Opened> Open(const Options& options) {
  Opened opened;
  WEIR_ASSIGN_OR_RETURN(opened.spec, LoadJobSpec(options.job, options.sets));
  WEIR_ASSIGN_OR_RETURN(
      opened.evaluation,
      CheckpointEvaluation::Create(AnyStore(), opened.spec, options.data_dir,
                                   options.backend));
  WEIR_ASSIGN_OR_RETURN(opened.checkpoint,
                        ResolveCheckpoint(AnyStore(), options.checkpoint));
  return opened;
}

// Shifts by the largest logit, so that exp cannot overflow; the quotients are
// the same.
std::vector<double> Softmax(std::span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> result;
  double sum = 0;
  for (const float logit : logits) {
    result.push_back(std::exp(static_cast<double>(logit) - top));
    sum += result.back();
  }
  for (double& value : result) {
    value /= sum;
  }
  return result;
}

std::string PredictionLine(Loss::KindCase loss, int64_t index,
                           std::span<const float> outputs,
                           std::span<const float> label) {
  nlohmann::ordered_json line;
  line["index"] = index;
  line["label"] = label;
  line["outputs"] = outputs;
  if (loss == Loss::kSoftmaxCrossEntropy) {
    line["label"] = static_cast<int64_t>(label[0]);
    line["prediction"] =
        std::max_element(outputs.begin(), outputs.end()) - outputs.begin();
    line["probabilities"] = Softmax(outputs);
  } else if (loss == Loss::kSigmoidCrossEntropy) {
    line["label"] = static_cast<int64_t>(label[0]);
    // The output is a logit: above 0 the probability is above one half.
    line["prediction"] = static_cast<int>(outputs[0] > 0);
    line["probabilities"] = {1 / (1 + std::exp(-double{outputs[0]}))};
  }
  return line.dump() + "\n";
}

absl::StatusOr<int> Evaluate(const Options& options) {
  WEIR_ASSIGN_OR_RETURN(const Opened opened, Open(options));
  WEIR_ASSIGN_OR_RETURN(const EvaluationResult result,
                        opened.evaluation->Run(opened.checkpoint));
  std::printf("%s\n", ResultLine(result).c_str());
  return 0;
}

absl::StatusOr<int> Predict(const Options& options) {
  WEIR_ASSIGN_OR_RETURN(const Opened opened, Open(options));
  WEIR_ASSIGN_OR_RETURN(const auto writer, Files::Real()->Create(options.out));
  WEIR_ASSIGN_OR_RETURN(
      const EvaluationResult result,
      opened.evaluation->Run(
          opened.checkpoint, [&](int64_t index, std::span<const float> outputs,
                                 std::span<const float> label) {
            const std::string line = PredictionLine(
                opened.spec.model().loss().kind_case(), index, outputs, label);
            return writer->Append(line.data(), line.size());
          }));
  WEIR_RETURN_IF_ERROR(writer->Close());
  absl::PrintF("%d predictions of %s written to %s\n", result.examples,
               result.checkpoint, options.out);
  return 0;
}

// Adds `evaluate` or `predict`, with the flags that both have.
CLI::App* AddBoth(CLI::App* app, const char* name, const char* about,
                  absl::StatusOr<int> (*run)(const Options&),
                  const std::shared_ptr<Options>& options, Command* command) {
  CLI::App* sub = AddSubcommand(app, name, about, options, run, command);
  AddJobFlags(sub, "job", &options->job, &options->sets, &options->data_dir);
  AddOption(sub, "--checkpoint", &options->checkpoint, "its directory")
      .Required();
  options->backend.device = "auto";
  AddDeviceFlags(sub, &options->backend.device, &options->backend.plugin_path);
  return sub;
}

}  // namespace

void AddEvaluateCommand(CLI::App* app, Command* command) {
  AddBoth(app, "evaluate", "compute a checkpoint's metrics", Evaluate,
          std::make_shared<Options>(), command);
}

void AddPredictCommand(CLI::App* app, Command* command) {
  auto options = std::make_shared<Options>();
  CLI::App* const predict =
      AddBoth(app, "predict", "write a checkpoint's predictions", Predict,
              options, command);
  AddOption(predict, "--out", &options->out, "a .jsonl file").Required();
}

}  // namespace weir
