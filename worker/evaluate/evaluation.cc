#include "worker/evaluate/evaluation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/failpoint.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/wire/declaration_io.h"
#include "worker/evaluate/metrics.h"
#include "worker/train/job_backend.h"

namespace weir {
namespace {

// Rows that are computed at once where the job does not say. It bounds the
// memory of activations; the metrics do not depend on it.
constexpr int64_t kBatchSize = 256;

absl::StatusOr<std::unique_ptr<Dataset>> OpenData(const JobSpec& spec,
                                                  const std::string& data_dir) {
  if (spec.has_evaluation()) {
    return CreateDataset(spec.evaluation().source(), data_dir, spec.seed(),
                         "evaluation.source");
  }
  return CreateDataset(spec.data().train(), data_dir, spec.seed(),
                       "data.train");
}

}  // namespace

std::string ResultLine(const EvaluationResult& result,
                       std::optional<double> seconds) {
  nlohmann::ordered_json line;
  line["checkpoint"] = result.checkpoint;
  line["step"] = result.step;
  line["examples"] = result.examples;
  if (seconds.has_value()) {
    line["seconds"] = *seconds;
  }
  for (const auto& [name, value] : result.metrics) {
    line[name] = value;
  }
  return line.dump();
}

absl::StatusOr<std::unique_ptr<CheckpointEvaluation>>
CheckpointEvaluation::Create(ObjectStore* files, const JobSpec& spec,
                             const std::string& data_dir,
                             const BackendOptions& backend) {
  auto evaluation = std::unique_ptr<CheckpointEvaluation>(
      new CheckpointEvaluation(files, spec));
  WEIR_ASSIGN_OR_RETURN(evaluation->data_, OpenData(spec, data_dir));
  WEIR_RETURN_IF_ERROR(evaluation->FindGroupFeature());
  WEIR_ASSIGN_OR_RETURN(evaluation->backend_, CreateJobBackend(spec, backend));
  NetworkOptions options;
  options.sparse = {TablesFromSpec(spec), evaluation->data_->sparse_features()};
  WEIR_ASSIGN_OR_RETURN(
      evaluation->network_,
      Network::Create(spec.model(), evaluation->data_->feature_shape(),
                      evaluation->backend_.get(), options));
  // Not the checkpoint's layout, which has the shards of the job's ps.
  // LoadParameters finds variables by name.
  WEIR_ASSIGN_OR_RETURN(Layout layout,
                        Layout::Create(evaluation->network_->variables(), 1,
                                       Layout::kDefaultBlockElements));
  evaluation->layout_ = std::make_unique<Layout>(std::move(layout));
  evaluation->parameters_.resize(evaluation->layout_->flat_elements());
  WEIR_RETURN_IF_ERROR(evaluation->network_->Bind(
      *evaluation->layout_, evaluation->parameters_.data(), nullptr));
  return evaluation;
}

absl::Status CheckpointEvaluation::FindGroupFeature() {
  const std::string& group = spec_.evaluation().auc_group();
  if (group.empty()) {
    return absl::OkStatus();
  }
  const std::vector<std::string>& features = data_->sparse_features();
  const auto at = std::find(features.begin(), features.end(), group);
  if (at == features.end()) {
    return Invalid("evaluation.auc_group: '", group,
                   "' is not a feature of the data; it has [",
                   absl::StrJoin(features, ", "), "]");
  }
  group_feature_ = static_cast<size_t>(at - features.begin());
  return absl::OkStatus();
}

absl::Status CheckpointEvaluation::LoadParameters(
    const std::string& checkpoint_dir, EvaluationResult* result) {
  WEIR_ASSIGN_OR_RETURN(const auto reader,
                        CheckpointReader::Open(files_, checkpoint_dir));
  for (size_t v = 0; v < layout_->variables().size(); ++v) {
    const VariableSpec& variable = layout_->variables()[v];
    const int stored = reader->layout().Find(variable.name);
    // The job file may have changed since; equal shapes are all that is needed.
    if (stored < 0 ||
        reader->layout().variables()[stored].shape != variable.shape) {
      return Invalid(
          checkpoint_dir, " has no variable '", variable.name,
          "' of the model's shape: evaluate with the job that wrote it");
    }
    WEIR_RETURN_IF_ERROR(reader->ReadFlat(
        kValuesArray, reader->layout().flat_begin(stored), variable.elements(),
        parameters_.data() + layout_->flat_begin(static_cast<int>(v))));
  }
  Failpoint("evaluator.mid_read");
  WEIR_RETURN_IF_ERROR(tables_.Load(files_, checkpoint_dir, reader->manifest(),
                                    network_->tables()));
  result->checkpoint = reader->manifest().name();
  result->step = reader->manifest().step();
  return absl::OkStatus();
}

absl::StatusOr<std::span<const TableInput>> CheckpointEvaluation::LookUp(
    int64_t samples) {
  const std::vector<GraphTable>& tables = network_->tables();
  table_batches_.resize(tables.size());
  table_rows_.resize(tables.size());
  table_inputs_.clear();
  for (size_t t = 0; t < tables.size(); ++t) {
    WEIR_RETURN_IF_ERROR(
        table_batches_[t].Fill(tables[t].uses, sparse_, samples));
    const std::vector<uint64_t>& ids = table_batches_[t].ids();
    table_rows_[t].resize(ids.size() * static_cast<size_t>(tables[t].dim));
    tables_.Lookup(t, ids, table_rows_[t].data());
    // No memory for gradients: evaluation computes none.
    table_inputs_.push_back({&table_batches_[t], table_rows_[t].data()});
  }
  return std::span<const TableInput>(table_inputs_);
}

absl::StatusOr<EvaluationResult> CheckpointEvaluation::Run(
    const std::string& checkpoint_dir, const Sink& sink) {
  EvaluationResult result;
  WEIR_RETURN_IF_ERROR(LoadParameters(checkpoint_dir, &result));
  int64_t batch = spec_.evaluation().batch_size();
  if (batch == 0) {
    batch = kBatchSize;
  }
  // The job's number may be a large one that means "all at once".
  batch = std::clamp<int64_t>(data_->size(), 1, batch);
  const int64_t width = network_->feature_elements();
  const int64_t label_width = network_->label_width();
  std::vector<float> features(batch * width);
  std::vector<float> labels(batch * label_width);
  Metrics metrics(spec_.model().loss().kind_case());
  const int64_t size = data_->size();
  for (int64_t begin = 0; begin < size; begin += batch) {
    const int64_t rows = std::min(batch, size - begin);
    sparse_.Clear(data_->sparse_features().size());
    for (int64_t row = 0; row < rows; ++row) {
      WEIR_RETURN_IF_ERROR(
          data_->ReadSample(begin + row, features.data() + row * width,
                            labels.data() + row * label_width));
      WEIR_RETURN_IF_ERROR(data_->ReadSparse(begin + row, &sparse_));
      const absl::Status good = network_->CheckLabel(labels[row * label_width]);
      if (!good.ok()) {
        return Annotate(
            good, absl::StrCat("sample ", begin + row, ", counted from 0"));
      }
    }
    WEIR_ASSIGN_OR_RETURN(const std::span<const TableInput> tables,
                          LookUp(rows));
    WEIR_ASSIGN_OR_RETURN(
        const EvaluateResult evaluated,
        network_->Evaluate(features.data(), labels.data(), rows, tables));
    const int64_t output_width = network_->output_width();
    // Evaluate gives the sum over the rows, Add takes their mean.
    metrics.Add(evaluated.outputs.data(), labels.data(), rows, output_width,
                evaluated.loss_sum / static_cast<double>(rows));
    // A sample whose bag is empty belongs to no group; of several ids the first
    // names the group.
    for (int64_t row = 0; group_feature_.has_value() && row < rows; ++row) {
      const SparseFeature& groups = sparse_.features[*group_feature_];
      const int64_t first = groups.offsets[row];
      if (first < groups.offsets[row + 1]) {
        metrics.AddGroup(groups.ids[first], evaluated.outputs[row],
                         labels[row] > 0.5f);
      }
    }
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
