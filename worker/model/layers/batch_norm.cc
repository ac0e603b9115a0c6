#include "worker/model/layers/batch_norm.h"

#include "common/base/status.h"

namespace weir {
namespace {

// The order of traits().variables.
enum Variable : int { kScale, kOffset, kMovingMean, kMovingVariance };

class BatchNormOp : public LayerOp {
 public:
  BatchNormOp(LayerTraits traits, float epsilon)
      : LayerOp(std::move(traits)), epsilon_(epsilon) {}

  void Forward(const LayerContext& c) override {
    // The batch's mean is a buffer's sample, and Backward needs it, too. So it
    // goes straight to where the sample is pushed from.
    if (c.training) {
      c.backend->Run(op::NormForward{.over = NormOver::kColumn,
                                     .rows = Rows(c),
                                     .width = Channels(),
                                     .epsilon = epsilon_,
                                     .x = c.inputs[0],
                                     .scale = c.parameters[kScale],
                                     .offset = c.parameters[kOffset],
                                     .y = c.output,
                                     .mean = c.gradients[kMovingMean],
                                     .rstd = c.workspaces[0],
                                     .variance = c.gradients[kMovingVariance]});
    } else {
      c.backend->Run(
          op::NormInference{.rows = Rows(c),
                            .width = Channels(),
                            .epsilon = epsilon_,
                            .x = c.inputs[0],
                            .scale = c.parameters[kScale],
                            .offset = c.parameters[kOffset],
                            .mean = c.parameters[kMovingMean],
                            .variance = c.parameters[kMovingVariance],
                            .y = c.output});
    }
  }

  void Backward(const LayerContext& c) override {
    c.backend->Run(op::NormBackward{.over = NormOver::kColumn,
                                    .rows = Rows(c),
                                    .width = Channels(),
                                    .x = c.inputs[0],
                                    .scale = c.parameters[kScale],
                                    .mean = c.gradients[kMovingMean],
                                    .rstd = c.workspaces[0],
                                    .dy = c.output_gradient,
                                    .dx = c.input_gradients[0],
                                    .dscale = c.gradients[kScale],
                                    .doffset = c.gradients[kOffset]});
  }

 private:
  // Images are channels-last here (WantedFormat), so every pixel is a row.
  int64_t Channels() const { return traits().output.dims.front(); }
  int64_t Rows(const LayerContext& c) const {
    return OutputElements(c) / Channels();
  }

  const float epsilon_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LayerOp>> MakeBatchNorm(
    const BatchNorm& spec, const TensorInfo& input) {
  const float epsilon = spec.has_epsilon() ? spec.epsilon() : 1e-5f;
  if (!(epsilon > 0.0f)) {
    return absl::InvalidArgumentError(
        absl::StrCat("epsilon is ", epsilon, "; it must be > 0"));
  }
  const float momentum = spec.has_momentum() ? spec.momentum() : 0.1f;
  if (!(momentum >= 0.0f && momentum <= 1.0f)) {
    return absl::InvalidArgumentError(
        absl::StrCat("momentum is ", momentum, "; it must be in [0, 1]"));
  }
  if (input.dims.size() != 1 && !input.is_image()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input is ", input.ToString(),
        ", batch_norm takes [batch, channels] or [batch, channels, height, "
        "width]"));
  }
  const std::vector<int64_t> shape = {input.dims[0]};
  const InitSpec ones = {.kind = InitKind::kConstant, .scale = 1.0f};
  LayerTraits traits{.output = input};
  traits.variables = {TrainedVariable("scale", shape, ones),
                      TrainedVariable("offset", shape, {}),
                      TrainedVariable("moving_mean", shape, {}),
                      TrainedVariable("moving_variance", shape, ones)};
  for (const int v : {kMovingMean, kMovingVariance}) {
    traits.variables[v].kind = VariableKind::kBuffer;
    traits.variables[v].buffer_rate = momentum;
  }
  traits.workspaces = {{.fixed = input.dims[0]}};  // rstd
  return std::make_unique<BatchNormOp>(std::move(traits), epsilon);
}

}  // namespace weir
