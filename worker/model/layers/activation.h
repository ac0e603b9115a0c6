// Functions of single elements: relu, sigmoid, tanh. They take any format, and
// work in place where the graph allows it.
#ifndef WORKER_MODEL_LAYERS_ACTIVATION_H_
#define WORKER_MODEL_LAYERS_ACTIVATION_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

std::unique_ptr<LayerOp> MakeActivation(ActivationKind kind,
                                        const TensorInfo& input);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_ACTIVATION_H_
