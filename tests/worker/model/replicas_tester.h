// Replicas with their buffers, for tests: the same model, values and batch as a
// NetworkTester's.
#ifndef TESTS_WORKER_MODEL_REPLICAS_TESTER_H_
#define TESTS_WORKER_MODEL_REPLICAS_TESTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/worker/model/network_tester.h"
#include "worker/compute/backend.h"
#include "worker/model/replicas.h"

namespace weir {

class ReplicasTester {
 public:
  using Backends = std::vector<std::unique_ptr<Backend>>;

  // Takes over the values of `like`, which is bound to the same model. The
  // gradients are poisoned with NaN.
  static absl::StatusOr<std::unique_ptr<ReplicasTester>> Create(
      const std::string& model, std::vector<int64_t> sample_shape,
      Backends backends, NetworkTester* like);

  Replicas& replicas() { return *replicas_; }
  Backend& backend(size_t replica) { return *backends_[replica]; }
  const std::vector<VariableSpec>& variables() const {
    return replicas_->network().variables();
  }
  float* parameter(int variable);
  float* gradient(int variable);

  // Runs one step on the first `rows` rows of the batch of `like`.
  absl::StatusOr<StepResult> Step(NetworkTester* like, int64_t rows,
                                  uint64_t seed = 1,
                                  const StepHooks& hooks = {});

 private:
  ReplicasTester() = default;

  Backends backends_;
  std::vector<float> parameters_, gradients_;
  std::unique_ptr<Layout> layout_;
  std::unique_ptr<Replicas> replicas_;  // borrows all above
};

// The largest relative error of any variable's gradient against `like`'s.
double GradientError(ReplicasTester* actual, NetworkTester* like);

}  // namespace weir

#endif  // TESTS_WORKER_MODEL_REPLICAS_TESTER_H_
