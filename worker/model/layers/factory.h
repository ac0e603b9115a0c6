// Makes a layer from its spec.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  no kind set, wrong number of inputs, or what the
//   layer's own header says.
#ifndef WORKER_MODEL_LAYERS_FACTORY_H_
#define WORKER_MODEL_LAYERS_FACTORY_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/model/layers/embedding_bag.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

// The format that `spec` wants its image inputs in; unset: any, but the same.
std::optional<Format> WantedFormat(const Layer& spec);

// REQUIRES: image inputs are in the wanted format.
absl::StatusOr<std::unique_ptr<LayerOp>> MakeLayer(
    const Layer& spec, const std::vector<TensorInfo>& inputs,
    const SparseSpec& sparse);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_FACTORY_H_
