// Joins the inputs of layers that let vectors interact. Each input is [batch,
// features, dim] or [batch, dim], all of one dim. Joined in their order they
// are [batch, vectors, dim].
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
  // REQUIRES: at least one input.
  static absl::StatusOr<VectorInputs> Create(
      const std::vector<TensorInfo>& inputs);

  VectorsShape Shape(int64_t rows) const {
    return {.batch = rows, .vectors = vectors_, .dim = dim_};
  }
  // The workspaces that the layer must have, and no others. A single input
  // needs none: it is read and written where it is.
  std::vector<WorkspaceSpec> workspaces() const;

  // To be called by Forward: copies the inputs together.
  void Join(const LayerContext& c) const;
  // Returns the joined inputs. REQUIRES: Join was called for this step.
  const float* Values(const LayerContext& c) const;
  // Returns where the layer must write the joined gradient; null when it has a
  // single input whose gradient nobody reads.
  float* Gradient(const LayerContext& c) const;
  // To be called by Backward: copies the joined gradient to the inputs'.
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
