// Crosses the input with itself, layer by layer: x_{l+1} = x_0 (x_l W_l + b_l)
// + x_l. Variables kernel_0, bias_0, kernel_1, ...
//
// Errors: INVALID_ARGUMENT  an input that is not [batch, width].
// Source: Wang et al., "DCN V2", WWW 2021, eq. 1.
#ifndef WORKER_MODEL_LAYERS_CROSS_H_
#define WORKER_MODEL_LAYERS_CROSS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

absl::StatusOr<std::unique_ptr<LayerOp>> MakeCross(const Cross& spec,
                                                   const TensorInfo& input);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_CROSS_H_
