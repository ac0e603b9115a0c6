#include "common/base/status.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

class DropoutOp : public LayerOp {
 public:
  DropoutOp(LayerTraits traits, float rate)
      : LayerOp(std::move(traits)), rate_(rate) {}

  void Forward(const LayerContext& c) override {
    const int64_t count = OutputElements(c);
    if (c.training) {
      c.backend->Run(
          op::Dropout{c.key_index, rate_, count, c.inputs[0], c.output});
    } else if (c.output != c.inputs[0]) {  // not in place
      c.backend->Run(
          op::CopyColumns{1, count, c.inputs[0], count, c.output, count});
    }
  }

  // The layer is linear: the same mask and scale, by the same key.
  void Backward(const LayerContext& c) override {
    if (c.input_gradients[0] != nullptr) {
      c.backend->Run(op::Dropout{c.key_index, rate_, OutputElements(c),
                                 c.output_gradient, c.input_gradients[0]});
    }
  }

 private:
  const float rate_;
};

}  // namespace

MadeLayer MakeDropout(const LayerSource& source) {
  const Dropout& spec = source.spec.dropout();
  const TensorInfo& input = source.input();
  if (!(spec.rate() >= 0.0f && spec.rate() < 1.0f)) {
    return Invalid("rate is ", spec.rate(), "; it must be in [0, 1)");
  }
  return std::make_unique<DropoutOp>(
      LayerTraits{.output = input, .in_place = true}, spec.rate());
}

}  // namespace weir
