// Normalises every sample over its last dimension.
//
// Variables: scale, offset, both [last].
// Errors: INVALID_ARGUMENT  epsilon is not > 0.
// Source: Ba et al., "Layer Normalization", 2016, eq. 3 and 4.
#ifndef WORKER_MODEL_LAYERS_LAYER_NORM_H_
#define WORKER_MODEL_LAYERS_LAYER_NORM_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

absl::StatusOr<std::unique_ptr<LayerOp>> MakeLayerNorm(const LayerNorm& spec,
                                                       const TensorInfo& input);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_LAYER_NORM_H_
