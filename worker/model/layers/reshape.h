// Layers that move no value: flatten, and the change of an image's format that
// Network puts between layers that want different ones.
#ifndef WORKER_MODEL_LAYERS_RESHAPE_H_
#define WORKER_MODEL_LAYERS_RESHAPE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

// [batch, ...] -> [batch, product]; a view. REQUIRES: a plain input.
std::unique_ptr<LayerOp> MakeFlatten(const TensorInfo& input);

// The same image in the other format; a view where both lie alike in memory.
// REQUIRES: input.is_image().
std::unique_ptr<LayerOp> MakeFormatChange(const TensorInfo& input);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_RESHAPE_H_
