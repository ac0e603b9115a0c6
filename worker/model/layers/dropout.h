// Zeroes elements at random in training, and scales the rest. In evaluation it
// changes nothing.
//
// The mask is a function of (contribution seed, layer index, element index).
// Backward makes it again, so it takes no memory and is the same on every
// backend.
// Errors: INVALID_ARGUMENT  rate outside [0, 1).
#ifndef WORKER_MODEL_LAYERS_DROPOUT_H_
#define WORKER_MODEL_LAYERS_DROPOUT_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

absl::StatusOr<std::unique_ptr<LayerOp>> MakeDropout(const Dropout& spec,
                                                     const TensorInfo& input);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_DROPOUT_H_
