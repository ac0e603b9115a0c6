#include "tests/worker/model/replicas_tester.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/status.h"

namespace weir {

absl::StatusOr<std::unique_ptr<ReplicasTester>> ReplicasTester::Create(
    const std::string& model, std::vector<int64_t> sample_shape,
    Backends backends, NetworkTester* like) {
  std::unique_ptr<ReplicasTester> tester(new ReplicasTester);
  tester->backends_ = std::move(backends);
  std::vector<Backend*> borrowed;
  for (const auto& backend : tester->backends_) {
    borrowed.push_back(backend.get());
  }
  WEIR_ASSIGN_OR_RETURN(
      tester->replicas_,
      Replicas::Create(ParseModel(model), sample_shape, borrowed, {}));
  tester->layout_ = std::make_unique<Layout>(like->layout());
  const int64_t flat = like->layout().flat_elements();
  tester->parameters_.assign(like->parameters(), like->parameters() + flat);
  tester->gradients_.assign(flat, std::numeric_limits<float>::quiet_NaN());
  WEIR_RETURN_IF_ERROR(tester->replicas_->Bind(
      *tester->layout_, tester->parameters_.data(), tester->gradients_.data()));
  return tester;
}

float* ReplicasTester::parameter(int variable) {
  return parameters_.data() + layout_->flat_begin(variable);
}

float* ReplicasTester::gradient(int variable) {
  return gradients_.data() + layout_->flat_begin(variable);
}

absl::StatusOr<StepResult> ReplicasTester::Step(NetworkTester* like,
                                                int64_t rows, uint64_t seed,
                                                const StepHooks& hooks) {
  return replicas_->TrainStep(like->features().data(), like->labels().data(),
                              rows, seed, hooks);
}

double GradientError(ReplicasTester* actual, NetworkTester* like) {
  double worst = 0.0;
  const auto& variables = actual->variables();
  for (size_t v = 0; v < variables.size(); ++v) {
    const double error = RelativeError(actual->gradient(static_cast<int>(v)),
                                       like->gradient(variables[v].name),
                                       variables[v].elements());
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity()
                              : std::max(worst, error);
  }
  return worst;
}

}  // namespace weir
