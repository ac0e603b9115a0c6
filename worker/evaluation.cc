#include "worker/evaluation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "proto/checkpoint_io.h"
#include "worker/job_backend.h"
#include "worker/metrics.h"

namespace weir {

absl::StatusOr<std::unique_ptr<CheckpointEvaluation>>
CheckpointEvaluation::Create(Files* files, const JobSpec& spec,
                             const std::string& data_dir,
                             const BackendOptions& backend) {
  auto evaluation = std::unique_ptr<CheckpointEvaluation>(
      new CheckpointEvaluation(files, spec));
  const bool own = spec.has_evaluation();
  WEIR_ASSIGN_OR_RETURN(
      evaluation->data_,
      CreateDataset(own ? spec.evaluation().source() : spec.data().train(),
                    data_dir, spec.seed(),
                    own ? "evaluation.source" : "data.train"));
  WEIR_ASSIGN_OR_RETURN(evaluation->backend_, CreateJobBackend(spec, backend));
  WEIR_ASSIGN_OR_RETURN(
      evaluation->network_,
      Network::Create(spec.model(), evaluation->data_->feature_shape(),
                      evaluation->backend_.get(), NetworkOptions{}));
  WEIR_ASSIGN_OR_RETURN(Layout layout,
                        Layout::Create(evaluation->network_->variables(), 1,
                                       Layout::kDefaultBlockElements));
  evaluation->layout_ = std::make_unique<Layout>(std::move(layout));
  evaluation->parameters_.resize(evaluation->layout_->flat_elements());
  WEIR_RETURN_IF_ERROR(evaluation->network_->Bind(
      *evaluation->layout_, evaluation->parameters_.data(), nullptr));
  return evaluation;
}

absl::Status CheckpointEvaluation::LoadParameters(
    const std::string& checkpoint_dir, EvaluationResult* result) {
  WEIR_ASSIGN_OR_RETURN(const auto reader,
                        CheckpointReader::Open(files_, checkpoint_dir));
  for (size_t v = 0; v < layout_->variables().size(); ++v) {
    const VariableSpec& variable = layout_->variables()[v];
    const int stored = reader->layout().Find(variable.name);
    if (stored < 0 ||
        reader->layout().variables()[stored].shape != variable.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          checkpoint_dir, " has no variable '", variable.name,
          "' of the model's shape: evaluate with the job that wrote it"));
    }
    WEIR_RETURN_IF_ERROR(reader->ReadFlat(
        kValuesArray, reader->layout().flat_begin(stored), variable.elements(),
        parameters_.data() + layout_->flat_begin(static_cast<int>(v))));
  }
  result->checkpoint = reader->manifest().name();
  result->step = reader->manifest().step();
  return absl::OkStatus();
}

absl::StatusOr<EvaluationResult> CheckpointEvaluation::Run(
    const std::string& checkpoint_dir, const Sink& sink) {
  EvaluationResult result;
  WEIR_RETURN_IF_ERROR(LoadParameters(checkpoint_dir, &result));
  const int64_t batch = std::max<int64_t>(
      1, spec_.evaluation().batch_size() > 0 ? spec_.evaluation().batch_size()
                                             : 256);
  const int64_t width = network_->feature_elements();
  const int64_t label_width = network_->label_width();
  std::vector<float> features(batch * width);
  std::vector<float> labels(batch * label_width);
  Metrics metrics(spec_.model().loss().kind_case());
  const int64_t size = data_->size();
  for (int64_t begin = 0; begin < size; begin += batch) {
    const int64_t rows = std::min(batch, size - begin);
    for (int64_t row = 0; row < rows; ++row) {
      WEIR_RETURN_IF_ERROR(
          data_->ReadSample(begin + row, features.data() + row * width,
                            labels.data() + row * label_width));
    }
    WEIR_ASSIGN_OR_RETURN(
        const EvaluateResult evaluated,
        network_->Evaluate(features.data(), labels.data(), rows));
    const int64_t output_width = network_->output_width();
    metrics.Add(evaluated.outputs.data(), labels.data(), rows, output_width,
                evaluated.loss_sum / static_cast<double>(rows));
    for (int64_t row = 0; sink && row < rows; ++row) {
      WEIR_RETURN_IF_ERROR(
          sink(begin + row,
               evaluated.outputs.subspan(row * output_width, output_width),
               {labels.data() + row * label_width,
                static_cast<size_t>(label_width)}));
    }
  }
  result.examples = metrics.rows();
  result.metrics = metrics.Result();
  return result;
}

}  // namespace weir
