#include "worker/model/layers/factory.h"

#include "common/status.h"
#include "worker/model/layers/activation.h"
#include "worker/model/layers/batch_norm.h"
#include "worker/model/layers/conv2d.h"
#include "worker/model/layers/dense.h"
#include "worker/model/layers/dropout.h"
#include "worker/model/layers/join.h"
#include "worker/model/layers/layer_norm.h"
#include "worker/model/layers/pool.h"
#include "worker/model/layers/reshape.h"

namespace weir {

std::optional<Format> WantedFormat(const Layer& spec) {
  switch (spec.kind_case()) {
    case Layer::kConv2D:
    case Layer::kMaxPool:
    case Layer::kAveragePool:
    case Layer::kBatchNorm:
      return Format::kChannelsLast;
    case Layer::kRelu:
    case Layer::kSigmoid:
    case Layer::kTanh:
    case Layer::kDropout:
    case Layer::kAdd:
      return std::nullopt;
    default:
      return Format::kPlain;
  }
}

absl::StatusOr<std::unique_ptr<LayerOp>> MakeLayer(
    const Layer& spec, const std::vector<TensorInfo>& inputs) {
  const bool joins = spec.has_add() || spec.has_concat();
  if (joins ? inputs.size() < 2 : inputs.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", inputs.size(), " inputs; it takes ",
                     joins ? "two or more" : "one"));
  }
  const TensorInfo& input = inputs[0];
  switch (spec.kind_case()) {
    case Layer::kDense:
      return MakeDense(spec.dense(), input);
    case Layer::kConv2D:
      return MakeConv2d(spec.conv2d(), input);
    case Layer::kMaxPool:
      return MakePool(PoolKind::kMax, spec.max_pool(), input);
    case Layer::kAveragePool:
      return MakePool(PoolKind::kAverage, spec.average_pool(), input);
    case Layer::kRelu:
      return MakeActivation(ActivationKind::kRelu, input);
    case Layer::kSigmoid:
      return MakeActivation(ActivationKind::kSigmoid, input);
    case Layer::kTanh:
      return MakeActivation(ActivationKind::kTanh, input);
    case Layer::kDropout:
      return MakeDropout(spec.dropout(), input);
    case Layer::kFlatten:
      return MakeFlatten(input);
    case Layer::kLayerNorm:
      return MakeLayerNorm(spec.layer_norm(), input);
    case Layer::kBatchNorm:
      return MakeBatchNorm(spec.batch_norm(), input);
    case Layer::kAdd:
      return MakeAdd(inputs);
    case Layer::kConcat:
      return MakeConcat(inputs);
    case Layer::kEmbeddingBag:
    case Layer::kFactorizationMachine:
    case Layer::kDotInteraction:
    case Layer::kCross:
    case Layer::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "no kind is set, or one that this version does not know; set one of "
      "dense, conv2d, max_pool, average_pool, relu, sigmoid, tanh, dropout, "
      "flatten, layer_norm, batch_norm, add, concat");
}

}  // namespace weir
