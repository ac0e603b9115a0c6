// The sum of the dot products of all pairs of the inputs' vectors: [batch, 1].
//
// Errors: those of vector_inputs.h.
#ifndef WORKER_MODEL_LAYERS_FACTORIZATION_MACHINE_H_
#define WORKER_MODEL_LAYERS_FACTORIZATION_MACHINE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

absl::StatusOr<std::unique_ptr<LayerOp>> MakeFactorizationMachine(
    const std::vector<TensorInfo>& inputs);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_FACTORIZATION_MACHINE_H_
