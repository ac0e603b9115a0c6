// Normalises every channel over all other dimensions, the batch included.
//
// Training takes the batch's own statistics, evaluation the moving ones.
// Variables, all [channels]: scale and offset, and the buffers moving_mean and
// moving_variance. A step puts the batch's mean and unbiased variance (as
// PyTorch does) where the buffers' gradients would be, and the ps moves the
// buffers by `momentum` towards them.
// Errors: INVALID_ARGUMENT  epsilon is not > 0, momentum is not in [0, 1], or
//   the input is neither [batch, channels] nor an image.
// Source: Ioffe and Szegedy, "Batch Normalization", 2015, algorithm 1.
#ifndef WORKER_MODEL_LAYERS_BATCH_NORM_H_
#define WORKER_MODEL_LAYERS_BATCH_NORM_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

absl::StatusOr<std::unique_ptr<LayerOp>> MakeBatchNorm(const BatchNorm& spec,
                                                       const TensorInfo& input);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_BATCH_NORM_H_
