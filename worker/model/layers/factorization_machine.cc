#include "worker/model/layers/factorization_machine.h"

#include <utility>

#include "common/base/status.h"
#include "worker/model/layers/vector_inputs.h"

namespace weir {
namespace {

class FactorizationMachineOp : public LayerOp {
 public:
  FactorizationMachineOp(LayerTraits traits, VectorInputs inputs)
      : LayerOp(std::move(traits)), inputs_(std::move(inputs)) {}

  void Forward(const LayerContext& c) override {
    inputs_.Join(c);
    c.backend->Run(op::PairForward{PairKind::kSum, inputs_.Shape(c.rows),
                                   inputs_.Values(c), c.output});
  }

  void Backward(const LayerContext& c) override {
    // The layer has no variables, so without a reader of dx nothing is left.
    if (float* const dx = inputs_.Gradient(c)) {
      c.backend->Run(op::PairBackward{PairKind::kSum, inputs_.Shape(c.rows),
                                      inputs_.Values(c), c.output_gradient,
                                      dx});
      inputs_.Split(c);
    }
  }

 private:
  const VectorInputs inputs_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LayerOp>> MakeFactorizationMachine(
    const std::vector<TensorInfo>& inputs) {
  WEIR_ASSIGN_OR_RETURN(VectorInputs joined, VectorInputs::Create(inputs));
  LayerTraits traits{.output = {.dims = {1}}};
  traits.workspaces = joined.workspaces();
  return std::make_unique<FactorizationMachineOp>(std::move(traits),
                                                  std::move(joined));
}

}  // namespace weir
