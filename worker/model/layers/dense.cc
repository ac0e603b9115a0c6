#include "common/base/status.h"
#include "worker/model/initializer.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

class DenseOp : public LayerOp {
 public:
  DenseOp(LayerTraits traits, int64_t in, int64_t units)
      : LayerOp(std::move(traits)), in_(in), units_(units) {}

  void Forward(const LayerContext& c) override {
    const MatMulShape shape{.m = c.rows, .n = units_, .k = in_};
    c.backend->Run(op::MatMul{shape, c.inputs[0], c.parameters[0],
                              c.parameter(1), c.output});
  }

  // dW = x' dy, db = the column sums of dy, dx = dy W'.
  void Backward(const LayerContext& c) override {
    const MatMulShape by_kernel{
        .m = in_, .n = units_, .k = c.rows, .transpose_a = true};
    c.backend->Run(op::MatMul{by_kernel, c.inputs[0], c.output_gradient,
                              nullptr, c.gradients[0]});
    if (float* const bias_gradient = c.gradient(1)) {
      c.backend->Run(
          op::SumRows{c.rows, units_, c.output_gradient, bias_gradient});
    }
    if (c.input_gradients[0] != nullptr) {
      const MatMulShape by_input{
          .m = c.rows, .n = in_, .k = units_, .transpose_b = true};
      c.backend->Run(op::MatMul{by_input, c.output_gradient, c.parameters[0],
                                nullptr, c.input_gradients[0]});
    }
  }

 private:
  const int64_t in_;
  const int64_t units_;
};

}  // namespace

MadeLayer MakeDense(const LayerSource& source) {
  const Dense& spec = source.spec.dense();
  const TensorInfo& input = source.input();
  if (spec.units() == 0) {
    return absl::InvalidArgumentError("units is 0; it must be >= 1");
  }
  if (input.dims.size() != 1) {
    return WrongInput(input,
                      "dense takes [batch, in]; put a flatten before it");
  }
  const int64_t in = input.dims[0];
  const int64_t units = spec.units();
  LayerTraits traits;
  traits.output.dims = {units};
  WEIR_ASSIGN_OR_RETURN(
      const InitSpec kernel,
      ResolveInitializer("kernel_initializer", spec.kernel_initializer(),
                         Initializer::kGlorotUniform, in, units));
  traits.variables.push_back(TrainedVariable("kernel", {in, units}, kernel));
  if (!spec.no_bias()) {
    WEIR_ASSIGN_OR_RETURN(
        const InitSpec bias,
        ResolveInitializer("bias_initializer", spec.bias_initializer(),
                           Initializer::kZeros, in, units));
    traits.variables.push_back(TrainedVariable("bias", {units}, bias));
  }
  return std::make_unique<DenseOp>(std::move(traits), in, units);
}

}  // namespace weir
