// A network with its buffers, for tests: from a text model to a step.
#ifndef TESTS_WORKER_MODEL_NETWORK_TESTER_H_
#define TESTS_WORKER_MODEL_NETWORK_TESTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/layout.h"
#include "proto/job_spec.pb.h"
#include "worker/compute/backend.h"
#include "worker/data/formats/sparse_batch.h"
#include "worker/model/network.h"
#include "worker/model/table_batch.h"

namespace weir {

// Aborts the test on text that does not parse.
Model ParseModel(const std::string& text);

// Tables "NAME:DIM" and names of categorical features.
SparseSpec MakeSparseSpec(const std::vector<std::string>& tables,
                          const std::vector<std::string>& features);

// Values in [low, high) from a seed.
std::vector<float> RandomFloats(uint64_t seed, int64_t count, float low,
                                float high);

// ||a - b|| / max(||b||, 1e-30) in double; NaN when any is NaN.
double RelativeError(const float* a, const float* b, int64_t count);

class NetworkTester {
 public:
  // Parameters are random in [-0.5, 0.5), buffers in [0.5, 1). The gradient
  // buffer, padding included, is poisoned with NaN. A null backend stands for
  // the CPU's.
  static absl::StatusOr<std::unique_ptr<NetworkTester>> Create(
      const std::string& model, const std::vector<int64_t>& sample_shape,
      std::unique_ptr<Backend> backend = nullptr,
      const SparseSpec& sparse = {});

  Network& network() { return *network_; }
  const Layout& layout() const { return *layout_; }
  float* parameters() { return parameters_.data(); }
  float* gradients() { return gradients_.data(); }
  float* parameter(const std::string& name);
  float* gradient(const std::string& name);
  int64_t elements(const std::string& name) const;

  // One of the model's tables: the ids of the batch, their rows and gradients.
  struct Table {
    TableBatch batch;
    std::vector<float> rows, gradients;
  };

  // Makes random features and labels that fit. Bags have 0 to 3 ids below 10,
  // with weights in every second feature; rows are random.
  void MakeBatch(uint64_t seed, int64_t rows);
  // Fills the tables from `batch`.
  void SetBags(const SparseBatch& batch, int64_t rows);
  std::vector<Table>& tables() { return tables_; }
  std::vector<TableInput> table_inputs();
  std::vector<float>& features() { return features_; }
  std::vector<float>& labels() { return labels_; }

  absl::StatusOr<StepResult> Step(uint64_t seed = 1,
                                  const StepHooks& hooks = {});

  // Checks every gradient, of rows too, against central differences of the
  // loss, by relative error per variable and table. Returns a description of
  // the worst, empty when all are within `tolerance`.
  std::string CheckGradients(double tolerance);

 private:
  NetworkTester() = default;

  absl::Status Bind();
  // Compares with differences; adds a line to *worst if the error is over the
  // tolerance.
  void CheckGradient(const std::string& name, const std::vector<float>& actual,
                     float* values, double tolerance, std::string* worst);

  std::unique_ptr<Backend> backend_;
  std::vector<float> parameters_, gradients_, features_, labels_;
  std::unique_ptr<Network> network_;  // borrows all above
  std::unique_ptr<Layout> layout_;
  std::vector<Table> tables_;  // by the network's tables
  size_t bags_ = 0;            // categorical features
  int64_t rows_ = 0;
};

// Builds the model, makes a batch and calls CheckGradients; "" if all is well.
std::string CheckModelGradients(const std::string& model,
                                const std::vector<int64_t>& sample_shape,
                                int64_t rows, const SparseSpec& sparse = {});

// The message of Create's error, or "OK".
std::string CreateError(const std::string& model,
                        const std::vector<int64_t>& sample_shape,
                        const SparseSpec& sparse = {});

}  // namespace weir

#endif  // TESTS_WORKER_MODEL_NETWORK_TESTER_H_
