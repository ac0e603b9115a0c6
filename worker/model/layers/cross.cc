#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "worker/model/initializer.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

class CrossOp : public LayerOp {
 public:
  CrossOp(LayerTraits traits, int64_t layers, int64_t width)
      : LayerOp(std::move(traits)), layers_(layers), width_(width) {}

  void Forward(const LayerContext& c) override {
    // Eq. 1, with u_l = x_l W_l + b_l kept for backward, and the last x in the
    // output.
    const MatMulShape shape{.m = c.rows, .n = width_, .k = width_};
    for (int64_t l = 0; l < layers_; ++l) {
      c.backend->Run(op::MatMul{shape, X(c, l), c.parameters[2 * l],
                                c.parameters[2 * l + 1], Product(c, l)});
      float* next = c.output;
      if (l + 1 < layers_) {
        next = Kept(c, l + 1);
      }
      c.backend->Run(
          op::MultiplyAdd{Count(c), c.inputs[0], Product(c, l), X(c, l), next});
    }
  }

  // With u_l = x_l W_l + b_l and dx the gradient of x_{l+1}: that of u_l is
  // x_0 dx, x_0 gets u_l dx, and x_l gets dx itself and u_l's through W_l.
  void Backward(const LayerContext& c) override {
    const int64_t count = Count(c);
    float* const du = c.workspaces[kProductGradient];
    float* const dx0 = c.workspaces[kFirstGradient];
    float* const through = c.workspaces[kThrough];
    float* const sum = c.workspaces[kGradient];
    const float* dx = c.output_gradient;
    const MatMulShape by_kernel{
        .m = width_, .n = width_, .k = c.rows, .transpose_a = true};
    const MatMulShape by_input{
        .m = c.rows, .n = width_, .k = width_, .transpose_b = true};
    for (int64_t l = layers_; l-- > 0;) {
      c.backend->Run(op::MultiplyAdd{count, dx, c.inputs[0], nullptr, du});
      c.backend->Run(
          op::MatMul{by_kernel, X(c, l), du, nullptr, c.gradients[2 * l]});
      c.backend->Run(op::SumRows{c.rows, width_, du, c.gradients[2 * l + 1]});
      if (l == 0 && c.input_gradients[0] == nullptr) {
        return;  // dx0 and the gradient of x_0 have no reader
      }
      // The sum over all layers in dx0; the first one seen overwrites it.
      const float* sum_so_far = nullptr;
      if (l + 1 < layers_) {
        sum_so_far = dx0;
      }
      c.backend->Run(
          op::MultiplyAdd{count, dx, Product(c, l), sum_so_far, dx0});
      c.backend->Run(
          op::MatMul{by_input, du, c.parameters[2 * l], nullptr, through});
      c.backend->Run(op::Add{count, through, dx, sum});
      dx = sum;
    }
    // x_0 is the input of the first layer, and a factor in every layer.
    c.backend->Run(op::Add{count, dx, dx0, c.input_gradients[0]});
  }

  enum Workspace {
    kInputs,    // x_1, x_2, ... of all layers
    kProducts,  // u_0, u_1, ...
    kProductGradient,
    kFirstGradient,
    kThrough,
    kGradient,
  };

 private:
  int64_t Count(const LayerContext& c) const { return c.rows * width_; }
  // x_l, l >= 1.
  float* Kept(const LayerContext& c, int64_t l) const {
    return c.workspaces[kInputs] + (l - 1) * Count(c);
  }
  const float* X(const LayerContext& c, int64_t l) const {
    if (l == 0) {
      return c.inputs[0];
    }
    return Kept(c, l);
  }
  float* Product(const LayerContext& c, int64_t l) const {
    return c.workspaces[kProducts] + l * Count(c);
  }

  const int64_t layers_;
  const int64_t width_;
};

}  // namespace

MadeLayer MakeCross(const LayerSource& source) {
  const Cross& spec = source.spec.cross();
  const TensorInfo& input = source.input();
  if (input.dims.size() != 1) {
    return WrongInput(input,
                      "cross takes [batch, width]; put a flatten before it");
  }
  const int64_t layers = std::max<int64_t>(spec.layers(), 1);
  const int64_t width = input.dims[0];
  WEIR_ASSIGN_OR_RETURN(
      const InitSpec kernel,
      ResolveInitializer("kernel", {}, Initializer::kGlorotUniform, width,
                         width));
  LayerTraits traits{.output = input};
  for (int64_t l = 0; l < layers; ++l) {
    traits.variables.push_back(
        TrainedVariable(absl::StrCat("kernel_", l), {width, width}, kernel));
    traits.variables.push_back(
        TrainedVariable(absl::StrCat("bias_", l), {width}, {}));
  }
  // In the order of enum Workspace.
  traits.workspaces = {{.per_row = (layers - 1) * width},
                       {.per_row = layers * width},
                       {.per_row = width},
                       {.per_row = width},
                       {.per_row = width},
                       {.per_row = width}};
  return std::make_unique<CrossOp>(std::move(traits), layers, width);
}

}  // namespace weir
