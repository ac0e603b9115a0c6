// Makes a layer from its spec: the one place that knows every kind.
//
// Place: the graph's builder calls it.
// Threads: safe.
// Errors: INVALID_ARGUMENT  no kind is set, the number of inputs is wrong, or
//   what the layer's own header says.
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

// Returns the format in which the layer takes images; nullopt when it takes
// any, if all its inputs have the same.
std::optional<Format> WantedFormat(const Layer& spec);

// Makes the layer for inputs of these shapes. REQUIRES: images are in the
// format that WantedFormat returns.
absl::StatusOr<std::unique_ptr<LayerOp>> MakeLayer(
    const Layer& spec, const std::vector<TensorInfo>& inputs,
    const SparseSpec& sparse);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_FACTORY_H_
