#include <algorithm>

#include "common/base/status.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

// Keeps shape arithmetic far from overflow.
constexpr uint32_t kExtentMax = 1 << 20;

class PoolOp : public LayerOp {
 public:
  PoolOp(LayerTraits traits, PoolKind kind, const PoolShape& shape)
      : LayerOp(std::move(traits)), kind_(kind), shape_(shape) {}

  void Forward(const LayerContext& c) override {
    c.backend->Run(op::PoolForward{kind_, Shape(c), c.inputs[0], c.output});
  }

  void Backward(const LayerContext& c) override {
    if (c.input_gradients[0] != nullptr) {
      c.backend->Run(op::PoolBackward{kind_, Shape(c), c.inputs[0],
                                      c.output_gradient, c.input_gradients[0]});
    }
  }

 private:
  PoolShape Shape(const LayerContext& c) const {
    PoolShape shape = shape_;
    shape.batch = c.rows;
    return shape;
  }

  const PoolKind kind_;
  const PoolShape shape_;
};

}  // namespace

MadeLayer MakePool(const LayerSource& source) {
  const bool max = source.spec.has_max_pool();
  const Pool& spec = max ? source.spec.max_pool() : source.spec.average_pool();
  const TensorInfo& input = source.input();
  if (spec.size() == 0) {
    return absl::InvalidArgumentError("size is 0; it must be >= 1");
  }
  if (std::max(spec.size(), spec.stride()) > kExtentMax) {
    return Invalid("size and stride must be <= ", kExtentMax);
  }
  // With more a window could lie in the padding alone, which has no maximum.
  if (spec.padding() > spec.size() / 2) {
    return Invalid("padding ", spec.padding(), " is over half the size ",
                   spec.size());
  }
  if (!input.is_image()) {
    return WrongInput(input, "pooling takes [batch, channels, height, width]");
  }
  uint32_t stride = spec.stride();
  if (stride == 0) {  // not set: windows side by side
    stride = spec.size();
  }
  const PoolShape shape{.channels = input.dims[0],
                        .height = input.dims[1],
                        .width = input.dims[2],
                        .size = spec.size(),
                        .stride = stride,
                        .padding = spec.padding()};
  if (shape.size > std::min(shape.height, shape.width) + 2 * shape.padding) {
    return Invalid("size ", shape.size, " is larger than the input ",
                   input.ToString(), " with padding ", shape.padding);
  }
  LayerTraits traits;
  traits.output.dims = {shape.channels, shape.out_height(), shape.out_width()};
  traits.output.format = Format::kChannelsLast;
  return std::make_unique<PoolOp>(
      std::move(traits), max ? PoolKind::kMax : PoolKind::kAverage, shape);
}

}  // namespace weir
