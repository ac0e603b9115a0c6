// A network with its buffers, for tests: from a text model to a step.
#ifndef TESTS_WORKER_MODEL_NETWORK_TESTER_H_
#define TESTS_WORKER_MODEL_NETWORK_TESTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/layout.h"
#include "proto/job_spec.pb.h"
#include "worker/compute/backend.h"
#include "worker/model/network.h"

namespace weir {

// Aborts the test on text that does not parse.
Model ParseModel(const std::string& text);

// Values in [low, high) from a seed.
std::vector<float> RandomFloats(uint64_t seed, int64_t count, float low,
                                float high);

// ||a - b|| / max(||b||, 1e-30) in double; NaN when any is NaN.
double RelativeError(const float* a, const float* b, int64_t count);

class NetworkTester {
 public:
  // Parameters are random in [-0.5, 0.5), buffers in [0.5, 1). The gradient
  // buffer, padding included, is poisoned with NaN. Without a backend: the
  // CPU's.
  static absl::StatusOr<std::unique_ptr<NetworkTester>> Create(
      const std::string& model, std::vector<int64_t> sample_shape,
      std::unique_ptr<Backend> backend = nullptr);

  Network& network() { return *network_; }
  const Layout& layout() const { return *layout_; }
  float* parameters() { return parameters_.data(); }
  float* gradients() { return gradients_.data(); }
  float* parameter(const std::string& name);
  float* gradient(const std::string& name);
  int64_t elements(const std::string& name) const;

  // Random features and fitting labels.
  void MakeBatch(uint64_t seed, int64_t rows);
  std::vector<float>& features() { return features_; }
  std::vector<float>& labels() { return labels_; }

  absl::StatusOr<StepResult> Step(uint64_t seed = 1,
                                  const StepHooks& hooks = {});

  // Checks every gradient against central differences of the loss, by relative
  // error per variable. Returns a description of the worst, empty when all are
  // within `tolerance`.
  std::string CheckGradients(double tolerance);

 private:
  NetworkTester() = default;

  std::unique_ptr<Backend> backend_;
  std::vector<float> parameters_, gradients_, features_, labels_;
  std::unique_ptr<Network> network_;  // borrows all above
  std::unique_ptr<Layout> layout_;
  int64_t rows_ = 0;
};

// Builds, makes a batch and checks: "" when all is well.
std::string CheckModelGradients(const std::string& model,
                                std::vector<int64_t> sample_shape,
                                int64_t rows);

// The message of Create's error, or "OK".
std::string CreateError(const std::string& model,
                        std::vector<int64_t> sample_shape);

}  // namespace weir

#endif  // TESTS_WORKER_MODEL_NETWORK_TESTER_H_
