// Layer norm and batch norm.
#include "common/base/status.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

// The order of traits().variables. A layer norm has the first two.
enum Variable : int { kScale, kOffset, kMovingMean, kMovingVariance };

// Forward keeps mean and reciprocal standard deviation for Backward, which
// would have to sum over x again.
class NormOp : public LayerOp {
 public:
  NormOp(LayerTraits traits, NormOver over, float epsilon)
      : LayerOp(std::move(traits)), over_(over), epsilon_(epsilon) {}

  void Forward(const LayerContext& c) override {
    if (over_ == NormOver::kColumn && !c.training) {
      c.backend->Run(
          op::NormInference{.rows = Rows(c),
                            .width = Width(),
                            .epsilon = epsilon_,
                            .x = c.inputs[0],
                            .scale = c.parameters[kScale],
                            .offset = c.parameters[kOffset],
                            .mean = c.parameters[kMovingMean],
                            .variance = c.parameters[kMovingVariance],
                            .y = c.output});
      return;
    }
    c.backend->Run(op::NormForward{.over = over_,
                                   .rows = Rows(c),
                                   .width = Width(),
                                   .epsilon = epsilon_,
                                   .x = c.inputs[0],
                                   .scale = c.parameters[kScale],
                                   .offset = c.parameters[kOffset],
                                   .y = c.output,
                                   .mean = Mean(c),
                                   .rstd = c.workspaces[0],
                                   .variance = c.gradient(kMovingVariance)});
  }

  void Backward(const LayerContext& c) override {
    c.backend->Run(op::NormBackward{.over = over_,
                                    .rows = Rows(c),
                                    .width = Width(),
                                    .x = c.inputs[0],
                                    .scale = c.parameters[kScale],
                                    .mean = Mean(c),
                                    .rstd = c.workspaces[0],
                                    .dy = c.output_gradient,
                                    .dx = c.input_gradients[0],
                                    .dscale = c.gradients[kScale],
                                    .doffset = c.gradients[kOffset]});
  }

 private:
  // Images are channels-last in a batch norm (WantedFormat), so every pixel is
  // a row of channels. In a layer norm every dimension but the last is a row's.
  int64_t Width() const {
    const std::vector<int64_t>& dims = traits().output.dims;
    return over_ == NormOver::kColumn ? dims.front() : dims.back();
  }
  int64_t Rows(const LayerContext& c) const {
    return OutputElements(c) / Width();
  }
  // The batch's mean by channel is a buffer's sample. So it goes straight to
  // where the sample is pushed from.
  float* Mean(const LayerContext& c) const {
    return over_ == NormOver::kColumn ? c.gradients[kMovingMean]
                                      : c.workspaces[1];
  }

  const NormOver over_;
  const float epsilon_;
};

constexpr InitSpec kOnes = {.kind = InitKind::kConstant, .scale = 1.0f};

template <class Spec>
absl::StatusOr<float> EpsilonOf(const Spec& spec) {
  const float epsilon = spec.has_epsilon() ? spec.epsilon() : 1e-5f;
  if (!(epsilon > 0.0f)) {
    return Invalid("epsilon is ", epsilon, "; it must be > 0");
  }
  return epsilon;
}

LayerTraits TraitsOf(const TensorInfo& input, int64_t width) {
  return {.output = input,
          .variables = {TrainedVariable("scale", {width}, kOnes),
                        TrainedVariable("offset", {width}, {})}};
}

}  // namespace

MadeLayer MakeLayerNorm(const LayerSource& source) {
  WEIR_ASSIGN_OR_RETURN(const float epsilon,
                        EpsilonOf(source.spec.layer_norm()));
  const TensorInfo& input = source.input();
  LayerTraits traits = TraitsOf(input, input.dims.back());
  const int64_t rows = input.elements() / input.dims.back();
  traits.workspaces = {{.per_row = rows}, {.per_row = rows}};  // rstd, mean
  return std::make_unique<NormOp>(std::move(traits), NormOver::kRow, epsilon);
}

MadeLayer MakeBatchNorm(const LayerSource& source) {
  const BatchNorm& spec = source.spec.batch_norm();
  WEIR_ASSIGN_OR_RETURN(const float epsilon, EpsilonOf(spec));
  const float momentum = spec.has_momentum() ? spec.momentum() : 0.1f;
  if (!(momentum >= 0.0f && momentum <= 1.0f)) {
    return Invalid("momentum is ", momentum, "; it must be in [0, 1]");
  }
  const TensorInfo& input = source.input();
  if (input.dims.size() != 1 && !input.is_image()) {
    return WrongInput(input,
                      "batch_norm takes [batch, channels] or [batch, channels, "
                      "height, width]");
  }
  const int64_t channels = input.dims[0];
  LayerTraits traits = TraitsOf(input, channels);
  traits.variables.push_back(TrainedVariable("moving_mean", {channels}, {}));
  traits.variables.push_back(
      TrainedVariable("moving_variance", {channels}, kOnes));
  for (const int v : {kMovingMean, kMovingVariance}) {
    traits.variables[v].kind = VariableKind::kBuffer;
    traits.variables[v].buffer_rate = momentum;
  }
  traits.workspaces = {{.fixed = channels}};  // rstd
  return std::make_unique<NormOp>(std::move(traits), NormOver::kColumn,
                                  epsilon);
}

}  // namespace weir
