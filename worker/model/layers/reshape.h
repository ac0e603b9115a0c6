// Layers that compute nothing: flatten, and the change of an image's format
// that the graph puts between layers which want different ones.
#ifndef WORKER_MODEL_LAYERS_RESHAPE_H_
#define WORKER_MODEL_LAYERS_RESHAPE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

// Makes [batch, product] of [batch, ...]; a view. REQUIRES: a plain input.
std::unique_ptr<LayerOp> MakeFlatten(const TensorInfo& input);

// Makes the same image in the other format; a view where both formats have the
// same order of elements.
// REQUIRES: input.is_image().
std::unique_ptr<LayerOp> MakeFormatChange(const TensorInfo& input);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_RESHAPE_H_
