// Layers with several inputs: the sum, element by element, and concatenation
// along the last dimension.
//
// Errors: INVALID_ARGUMENT  two shapes do not fit; the message has both.
#ifndef WORKER_MODEL_LAYERS_JOIN_H_
#define WORKER_MODEL_LAYERS_JOIN_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

// REQUIRES: two inputs or more, of one format.
absl::StatusOr<std::unique_ptr<LayerOp>> MakeAdd(
    const std::vector<TensorInfo>& inputs);
// The inputs may differ in the last dimension only. REQUIRES: two inputs or
// more, all plain.
absl::StatusOr<std::unique_ptr<LayerOp>> MakeConcat(
    const std::vector<TensorInfo>& inputs);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_JOIN_H_
