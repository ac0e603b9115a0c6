// The dot products of all pairs of the inputs' vectors: [batch, pairs].
//
// Errors: those of vector_inputs.h.
#ifndef WORKER_MODEL_LAYERS_DOT_INTERACTION_H_
#define WORKER_MODEL_LAYERS_DOT_INTERACTION_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

absl::StatusOr<std::unique_ptr<LayerOp>> MakeDotInteraction(
    const std::vector<TensorInfo>& inputs);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_DOT_INTERACTION_H_
