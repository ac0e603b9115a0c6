// Computes the metrics and predictions of one checkpoint.
//
// Place: the evaluator, `weir evaluate` and `weir predict` share it. It knows
//   no ps: values come from the checkpoint's files.
//
// Threads: compatible.
// Owns/borrows: owns the data set, the network and one copy of the parameters;
//   borrows the files.
// Errors: INVALID_ARGUMENT  the job has no data to evaluate on, or the
//                           checkpoint lacks a variable of the model, or has it
//                           in another shape.
//         NOT_FOUND         no such checkpoint or data file; names it.
//         DATA_LOSS         a file is damaged; names it.
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
  std::string checkpoint;  // its name, "ckpt-500"
  uint64_t step = 0;
  int64_t examples = 0;
  std::map<std::string, double> metrics;
};

// Returns a result as one line of JSON, without its end. `seconds` is how long
// it took to compute; nullopt leaves it out.
std::string ResultLine(const EvaluationResult& result,
                       std::optional<double> seconds = std::nullopt);

class CheckpointEvaluation {
 public:
  // Called for each sample with its index, outputs [width] and label [label
  // width].
  using Sink =
      std::function<absl::Status(int64_t index, std::span<const float> outputs,
                                 std::span<const float> label)>;

  // Opens the data of the job's evaluation section, or the training data where
  // the job has none. `backend` says which device.
  // REQUIRES: `spec` is resolved.
  static absl::StatusOr<std::unique_ptr<CheckpointEvaluation>> Create(
      ObjectStore* files, const JobSpec& spec, const std::string& data_dir,
      const BackendOptions& backend);

  // Evaluates one checkpoint. `sink` may be null. An error of `sink` ends it.
  absl::StatusOr<EvaluationResult> Run(const std::string& checkpoint_dir,
                                       const Sink& sink = nullptr);

 private:
  CheckpointEvaluation(ObjectStore* files, const JobSpec& spec)
      : files_(files), spec_(spec) {}
  absl::Status FindGroupFeature();
  // Returns the rows of the ids in sparse_.
  absl::StatusOr<std::span<const TableInput>> LookUp(int64_t samples);
  absl::Status LoadParameters(const std::string& checkpoint_dir,
                              EvaluationResult* result);

  ObjectStore* const files_;
  const JobSpec spec_;
  std::unique_ptr<Dataset> data_;
  // evaluation.auc_group, as a feature of data_; nullopt where it is not set.
  std::optional<size_t> group_feature_;
  std::unique_ptr<Backend> backend_;
  std::vector<float> parameters_;  // borrowed by network_, so declared before
  std::unique_ptr<Network> network_;
  std::unique_ptr<Layout> layout_;  // of one shard
  TableValues tables_;
  // For the batch at hand: its ids, and by the network's tables their rows.
  SparseBatch sparse_;
  std::vector<TableBatch> table_batches_;
  std::vector<std::vector<float>> table_rows_;
  std::vector<TableInput> table_inputs_;
};

}  // namespace weir

#endif  // WORKER_EVALUATE_EVALUATION_H_
