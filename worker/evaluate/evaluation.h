// Computes metrics and predictions of one checkpoint.
//
// Place: the evaluator, `weir evaluate` and `weir predict` share it. Knows no
// ps: values come from the checkpoint's files.
//
// Threads: compatible. Owns the data set, the network and one copy of the
// parameters.
// Errors: INVALID_ARGUMENT  the job has no data to evaluate on, or a variable
//                           of the model is not in the checkpoint in that
//                           shape.
//         NOT_FOUND, DATA_LOSS  of the checkpoint or a data file, named.
#ifndef WORKER_EVALUATE_EVALUATION_H_
#define WORKER_EVALUATE_EVALUATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/files.h"
#include "common/job/layout.h"
#include "proto/job_spec.pb.h"
#include "worker/compute/backend.h"
#include "worker/compute/factory.h"
#include "worker/data/formats/dataset.h"
#include "worker/model/network.h"
#include "worker/train/table_values.h"

namespace weir {

struct EvaluationResult {
  std::string checkpoint;  // its name
  uint64_t step = 0;
  int64_t examples = 0;
  std::map<std::string, double> metrics;
};

class CheckpointEvaluation {
 public:
  // Called per sample: its index, outputs [width], label [label width].
  using Sink =
      std::function<absl::Status(int64_t index, std::span<const float> outputs,
                                 std::span<const float> label)>;

  // Reads the evaluation's data; a job without an evaluation section takes the
  // training data. `spec` is resolved, `backend` says which device.
  static absl::StatusOr<std::unique_ptr<CheckpointEvaluation>> Create(
      Files* files, const JobSpec& spec, const std::string& data_dir,
      const BackendOptions& backend);

  absl::StatusOr<EvaluationResult> Run(const std::string& checkpoint_dir,
                                       const Sink& sink = nullptr);

 private:
  CheckpointEvaluation(Files* files, const JobSpec& spec)
      : files_(files), spec_(spec) {}
  absl::Status FindGroupFeature();
  // The rows of what is in sparse_.
  absl::StatusOr<std::span<const TableInput>> LookUp(int64_t samples);
  absl::Status LoadParameters(const std::string& checkpoint_dir,
                              EvaluationResult* result);

  Files* const files_;
  const JobSpec spec_;
  std::unique_ptr<Dataset> data_;
  std::optional<size_t> group_feature_;  // evaluation.auc_group, of data_
  std::unique_ptr<Backend> backend_;
  std::vector<float> parameters_;  // the network's; goes after it
  std::unique_ptr<Network> network_;
  std::unique_ptr<Layout> layout_;  // of one shard
  TableValues tables_;
  // Of the batch at hand; the rest by the network's tables.
  SparseBatch sparse_;
  std::vector<TableBatch> table_batches_;
  std::vector<std::vector<float>> table_rows_;
  std::vector<TableInput> table_inputs_;
};

}  // namespace weir

#endif  // WORKER_EVALUATE_EVALUATION_H_
