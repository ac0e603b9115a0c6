// Inputs of layers that let vectors interact: [batch, features, dim] or [batch,
// dim], all of one dim, joined to [batch, vectors, dim] in their order.
//
// Errors: INVALID_ARGUMENT  images, different dims, fewer than two vectors.
#ifndef WORKER_MODEL_LAYERS_VECTOR_INPUTS_H_
#define WORKER_MODEL_LAYERS_VECTOR_INPUTS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

class VectorInputs {
 public:
  static absl::StatusOr<VectorInputs> Create(
      const std::vector<TensorInfo>& inputs);

  VectorsShape Shape(int64_t rows) const {
    return {.batch = rows, .vectors = vectors_, .dim = dim_};
  }
  // All that the layer has; a single input is read and written where it is.
  std::vector<WorkspaceSpec> workspaces() const;

  // In Forward: copies the inputs together.
  void Join(const LayerContext& c) const;
  // The joined inputs.
  const float* Values(const LayerContext& c) const;
  // Where the joined gradient is to be written; null: nobody wants it.
  float* Gradient(const LayerContext& c) const;
  // In Backward: copies the joined gradient to the inputs'.
  void Split(const LayerContext& c) const;

 private:
  VectorInputs() = default;

  bool single() const { return widths_.size() == 1; }
  int64_t width() const { return vectors_ * dim_; }

  std::vector<int64_t> widths_;  // elements of each input
  int64_t vectors_ = 0;
  int64_t dim_ = 0;
};

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_VECTOR_INPUTS_H_
