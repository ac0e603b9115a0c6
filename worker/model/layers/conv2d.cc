#include <algorithm>

#include "common/base/status.h"
#include "worker/model/initializer.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

// Keeps shape arithmetic and oneDNN's int far from overflow.
constexpr uint32_t kExtentMax = 1 << 20;

class Conv2dOp : public LayerOp {
 public:
  Conv2dOp(LayerTraits traits, const Conv2dShape& shape)
      : LayerOp(std::move(traits)), shape_(shape) {}

  void Forward(const LayerContext& c) override {
    c.backend->Run(op::Conv2dForward{Shape(c), c.inputs[0], c.parameters[0],
                                     c.parameter(1), c.output});
  }

  void Backward(const LayerContext& c) override {
    // The bias's gradient comes with the kernel's: both read all of dy.
    c.backend->Run(op::Conv2dBackwardKernel{Shape(c), c.inputs[0],
                                            c.output_gradient, c.gradients[0],
                                            c.gradient(1)});
    if (c.input_gradients[0] != nullptr) {
      c.backend->Run(op::Conv2dBackwardData{
          Shape(c), c.output_gradient, c.parameters[0], c.input_gradients[0]});
    }
  }

 private:
  Conv2dShape Shape(const LayerContext& c) const {
    Conv2dShape shape = shape_;
    shape.batch = c.rows;
    return shape;
  }

  const Conv2dShape shape_;
};

absl::Status Check(const Conv2d& spec, const TensorInfo& input) {
  if (spec.filters() == 0) {
    return absl::InvalidArgumentError("filters is 0; it must be >= 1");
  }
  if (spec.kernel_size() == 0) {
    return absl::InvalidArgumentError("kernel_size is 0; it must be >= 1");
  }
  if (std::max({spec.filters(), spec.kernel_size(), spec.stride(),
                spec.padding()}) > kExtentMax) {
    return Invalid("filters, kernel_size, stride and padding must be <= ",
                   kExtentMax);
  }
  if (!input.is_image()) {
    return WrongInput(input, "conv2d takes [batch, channels, height, width]");
  }
  const int64_t smallest =
      std::min(input.dims[1], input.dims[2]) + 2 * int64_t{spec.padding()};
  if (spec.kernel_size() > smallest) {
    return Invalid("kernel_size ", spec.kernel_size(),
                   " is larger than the input ", input.ToString(),
                   " with padding ", spec.padding());
  }
  return absl::OkStatus();
}

}  // namespace

MadeLayer MakeConv2d(const LayerSource& source) {
  const Conv2d& spec = source.spec.conv2d();
  const TensorInfo& input = source.input();
  WEIR_RETURN_IF_ERROR(Check(spec, input));
  // In proto3 an unset stride is 0.
  Conv2dShape shape{.channels = input.dims[0],
                    .height = input.dims[1],
                    .width = input.dims[2],
                    .filters = spec.filters(),
                    .kernel = spec.kernel_size(),
                    .stride = std::max<uint32_t>(spec.stride(), 1),
                    .padding = spec.padding()};
  const int64_t area = shape.kernel * shape.kernel;
  LayerTraits traits;
  traits.output.dims = {shape.filters, shape.out_height(), shape.out_width()};
  traits.output.format = Format::kChannelsLast;
  const std::vector<int64_t> kernel_shape = {shape.filters, shape.channels,
                                             shape.kernel, shape.kernel};
  WEIR_RETURN_IF_ERROR(CheckSize("kernel", kernel_shape));
  // An output sums over the kernel's area in all channels; an input goes to as
  // many outputs in all filters.
  const int64_t fan_in = shape.channels * area;
  const int64_t fan_out = shape.filters * area;
  WEIR_ASSIGN_OR_RETURN(
      const InitSpec kernel,
      ResolveInitializer("kernel_initializer", spec.kernel_initializer(),
                         Initializer::kHeNormal, fan_in, fan_out));
  traits.variables.push_back(TrainedVariable("kernel", kernel_shape, kernel));
  if (!spec.no_bias()) {
    WEIR_ASSIGN_OR_RETURN(
        const InitSpec bias,
        ResolveInitializer("bias_initializer", spec.bias_initializer(),
                           Initializer::kZeros, fan_in, fan_out));
    traits.variables.push_back(TrainedVariable("bias", {shape.filters}, bias));
  }
  return std::make_unique<Conv2dOp>(std::move(traits), shape);
}

}  // namespace weir
