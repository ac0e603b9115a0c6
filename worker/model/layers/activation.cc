// Functions of single elements: relu, sigmoid, tanh.
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

class ActivationOp : public LayerOp {
 public:
  ActivationOp(LayerTraits traits, ActivationKind kind)
      : LayerOp(std::move(traits)), kind_(kind) {}

  void Forward(const LayerContext& c) override {
    c.backend->Run(
        op::ActivationForward{kind_, OutputElements(c), c.inputs[0], c.output});
  }

  void Backward(const LayerContext& c) override {
    // From the output: all three derivatives are functions of it (y > 0, y (1 -
    // y), 1 - y^2), and in place the input is gone.
    if (c.input_gradients[0] != nullptr) {
      c.backend->Run(op::ActivationBackward{kind_, OutputElements(c), c.output,
                                            c.output_gradient,
                                            c.input_gradients[0]});
    }
  }

 private:
  const ActivationKind kind_;
};

}  // namespace

MadeLayer MakeActivation(const LayerSource& source) {
  ActivationKind kind = ActivationKind::kTanh;
  if (source.spec.has_relu()) {
    kind = ActivationKind::kRelu;
  } else if (source.spec.has_sigmoid()) {
    kind = ActivationKind::kSigmoid;
  }
  return std::make_unique<ActivationOp>(
      LayerTraits{
          .output = source.input(), .in_place = true, .keeps_output = true},
      kind);
}

}  // namespace weir
