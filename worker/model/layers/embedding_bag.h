// Pools the rows of a table by bags of ids; its input is the batch's ids, and
// not a tensor. Output [batch, features, dim].
//
// Errors: INVALID_ARGUMENT  a table that the job does not have, a feature that
//   the data does not have or that is named twice, or no feature at all.
#ifndef WORKER_MODEL_LAYERS_EMBEDDING_BAG_H_
#define WORKER_MODEL_LAYERS_EMBEDDING_BAG_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/model/layers/layer_op.h"

namespace weir {

// What a model may look up.
struct SparseSpec {
  std::vector<EmbeddingTable> tables = {};  // the job's
  std::vector<std::string> features = {};   // categorical, in the data's order
};

absl::StatusOr<std::unique_ptr<LayerOp>> MakeEmbeddingBag(
    const EmbeddingBag& spec, const SparseSpec& sparse);

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_EMBEDDING_BAG_H_
