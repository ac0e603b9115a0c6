// Cross-correlation over images that are padded with zeros.
//
// Variables: kernel [filters, channels, size, size], and bias [filters] unless
//   no_bias.
// Errors: INVALID_ARGUMENT  a field is 0 or too large, the input is not an
//   image, or the kernel does not fit into the padded image.
#ifndef WORKER_MODEL_LAYERS_CONV2D_H_
#define WORKER_MODEL_LAYERS_CONV2D_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

absl::StatusOr<std::unique_ptr<LayerOp>> MakeConv2d(const Conv2d& spec,
                                                    const TensorInfo& input);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_CONV2D_H_
