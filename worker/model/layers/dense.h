// A dense layer: y = x W + b, with x [batch, in], W [in, units], b [units].
//
// Variables: kernel, and bias unless no_bias.
// Errors: INVALID_ARGUMENT  units is 0, or the input is not [batch, in].
#ifndef WORKER_MODEL_LAYERS_DENSE_H_
#define WORKER_MODEL_LAYERS_DENSE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

absl::StatusOr<std::unique_ptr<LayerOp>> MakeDense(const Dense& spec,
                                                   const TensorInfo& input);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_DENSE_H_
