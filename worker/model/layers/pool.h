// Takes the maximum or the average over windows of an image.
//
// Errors: INVALID_ARGUMENT  size is 0, padding is over size / 2, the input is
//   not an image, or the window does not fit into the padded image.
#ifndef WORKER_MODEL_LAYERS_POOL_H_
#define WORKER_MODEL_LAYERS_POOL_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

absl::StatusOr<std::unique_ptr<LayerOp>> MakePool(PoolKind kind,
                                                  const Pool& spec,
                                                  const TensorInfo& input);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_POOL_H_
