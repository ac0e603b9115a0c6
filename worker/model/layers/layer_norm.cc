#include "worker/model/layers/layer_norm.h"

#include "common/base/status.h"

namespace weir {
namespace {

class LayerNormOp : public LayerOp {
 public:
  LayerNormOp(LayerTraits traits, float epsilon)
      : LayerOp(std::move(traits)), epsilon_(epsilon) {}

  // Keeps each row's mean and reciprocal standard deviation for Backward, which
  // would have to sum over the row again.
  void Forward(const LayerContext& c) override {
    c.backend->Run(op::NormForward{.over = NormOver::kRow,
                                   .rows = Rows(c),
                                   .width = Width(),
                                   .epsilon = epsilon_,
                                   .x = c.inputs[0],
                                   .scale = c.parameters[0],
                                   .offset = c.parameters[1],
                                   .y = c.output,
                                   .mean = c.workspaces[0],
                                   .rstd = c.workspaces[1]});
  }

  void Backward(const LayerContext& c) override {
    c.backend->Run(op::NormBackward{.over = NormOver::kRow,
                                    .rows = Rows(c),
                                    .width = Width(),
                                    .x = c.inputs[0],
                                    .scale = c.parameters[0],
                                    .mean = c.workspaces[0],
                                    .rstd = c.workspaces[1],
                                    .dy = c.output_gradient,
                                    .dx = c.input_gradients[0],
                                    .dscale = c.gradients[0],
                                    .doffset = c.gradients[1]});
  }

 private:
  // Every dimension but the last is a row's.
  int64_t Width() const { return traits().output.dims.back(); }
  int64_t Rows(const LayerContext& c) const {
    return OutputElements(c) / Width();
  }

  const float epsilon_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LayerOp>> MakeLayerNorm(
    const LayerNorm& spec, const TensorInfo& input) {
  const float epsilon = spec.has_epsilon() ? spec.epsilon() : 1e-5f;
  if (!(epsilon > 0.0f)) {
    return absl::InvalidArgumentError(
        absl::StrCat("epsilon is ", epsilon, "; it must be > 0"));
  }
  const int64_t width = input.dims.back();
  const int64_t rows = input.elements() / width;
  LayerTraits traits{.output = input};
  traits.variables = {
      TrainedVariable("scale", {width},
                      {.kind = InitKind::kConstant, .scale = 1.0f}),
      TrainedVariable("offset", {width}, {})};
  traits.workspaces = {{.per_row = rows}, {.per_row = rows}};  // mean, rstd
  return std::make_unique<LayerNormOp>(std::move(traits), epsilon);
}

}  // namespace weir
