// Dot interactions and factorization machines.
#include <utility>

#include "common/base/status.h"
#include "worker/model/layers/layers.h"
#include "worker/model/layers/vector_inputs.h"

namespace weir {
namespace {

class PairsOp : public LayerOp {
 public:
  PairsOp(LayerTraits traits, PairKind kind, VectorInputs inputs)
      : LayerOp(std::move(traits)), kind_(kind), inputs_(std::move(inputs)) {}

  void Forward(const LayerContext& c) override {
    inputs_.Join(c);
    c.backend->Run(op::PairForward{kind_, inputs_.Shape(c.rows),
                                   inputs_.Values(c), c.output});
  }

  void Backward(const LayerContext& c) override {
    // The layer has no variables, so without a reader of dx nothing is left.
    if (float* const dx = inputs_.Gradient(c)) {
      c.backend->Run(op::PairBackward{kind_, inputs_.Shape(c.rows),
                                      inputs_.Values(c), c.output_gradient,
                                      dx});
      inputs_.Split(c);
    }
  }

 private:
  const PairKind kind_;
  const VectorInputs inputs_;
};

}  // namespace

MadeLayer MakePairs(const LayerSource& source) {
  PairKind kind = PairKind::kDots;
  if (source.spec.has_factorization_machine()) {
    kind = PairKind::kSum;
  }
  WEIR_ASSIGN_OR_RETURN(VectorInputs joined,
                        VectorInputs::Create(source.inputs));
  LayerTraits traits{.output = {.dims = {joined.Shape(1).results(kind)}}};
  traits.workspaces = joined.workspaces();
  return std::make_unique<PairsOp>(std::move(traits), kind, std::move(joined));
}

}  // namespace weir
