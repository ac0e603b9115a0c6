#include "worker/model/layers/factory.h"

#include <limits>

#include "common/base/status.h"
#include "worker/model/layers/activation.h"
#include "worker/model/layers/batch_norm.h"
#include "worker/model/layers/conv2d.h"
#include "worker/model/layers/cross.h"
#include "worker/model/layers/dense.h"
#include "worker/model/layers/dot_interaction.h"
#include "worker/model/layers/dropout.h"
#include "worker/model/layers/embedding_bag.h"
#include "worker/model/layers/factorization_machine.h"
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
    // Element by element, so the order of elements does not matter.
    case Layer::kRelu:
    case Layer::kSigmoid:
    case Layer::kTanh:
    case Layer::kDropout:
    case Layer::kAdd:
      return std::nullopt;
    // The rest reads elements in the order of a JobSpec's dims.
    default:
      return Format::kPlain;
  }
}

namespace {

struct InputCount {
  size_t min = 1;
  size_t max = 1;
  const char* text = "one";
};

InputCount InputsOf(const Layer& spec) {
  constexpr size_t kAny = std::numeric_limits<size_t>::max();
  switch (spec.kind_case()) {
    case Layer::kAdd:
    case Layer::kConcat:
      return {2, kAny, "two or more"};
    case Layer::kFactorizationMachine:
    case Layer::kDotInteraction:
      return {1, kAny, "one or more"};
    case Layer::kEmbeddingBag:
      return {0, 0, "none, but features of the data"};
    default:
      return {};
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<LayerOp>> MakeLayer(
    const Layer& spec, const std::vector<TensorInfo>& inputs,
    const SparseSpec& sparse) {
  const InputCount takes = InputsOf(spec);
  if (inputs.size() < takes.min || inputs.size() > takes.max) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", inputs.size(), " inputs; it takes ", takes.text));
  }
  // Before inputs[0] below: this layer has no input.
  if (spec.has_embedding_bag()) {
    return MakeEmbeddingBag(spec.embedding_bag(), sparse);
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
    case Layer::kFactorizationMachine:
      return MakeFactorizationMachine(inputs);
    case Layer::kDotInteraction:
      return MakeDotInteraction(inputs);
    case Layer::kCross:
      return MakeCross(spec.cross(), input);
    case Layer::kEmbeddingBag:
    case Layer::KIND_NOT_SET:
      break;
  }
  // A kind that a newer version knows arrives as one that is not set.
  return absl::InvalidArgumentError(
      "no kind is set, or one that this version does not know; set one of "
      "dense, conv2d, max_pool, average_pool, relu, sigmoid, tanh, dropout, "
      "flatten, layer_norm, batch_norm, add, concat, embedding_bag, "
      "factorization_machine, dot_interaction, cross");
}

}  // namespace weir
