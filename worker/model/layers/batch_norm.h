// Normalisation over every dimension but channels.
//
// In training with the batch's own statistics, in evaluation with the moving
// ones. Variables: scale, offset; buffers moving_mean, moving_variance, all
// [channels]. A step puts the batch's mean and unbiased variance (as PyTorch
// does) into the buffers' places of the gradients; the ps moves the buffers by
// `momentum` towards them.
// Errors: INVALID_ARGUMENT  epsilon is not > 0, momentum outside [0, 1], or the
//   input is neither [batch, channels] nor an image.
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
