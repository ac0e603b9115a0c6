// Layers of several inputs: element-wise sum, and concatenation along the last
// dimension.
//
// Errors: INVALID_ARGUMENT  shapes that do not fit; names both.
#ifndef WORKER_MODEL_LAYERS_JOIN_H_
#define WORKER_MODEL_LAYERS_JOIN_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

// Inputs of one shape and format.
absl::StatusOr<std::unique_ptr<LayerOp>> MakeAdd(
    const std::vector<TensorInfo>& inputs);
// Plain inputs that differ in the last dimension only.
absl::StatusOr<std::unique_ptr<LayerOp>> MakeConcat(
    const std::vector<TensorInfo>& inputs);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_JOIN_H_
