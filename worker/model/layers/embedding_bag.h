// Pools the rows of a table by bags of ids. Its input is the ids of the batch,
// not a tensor. Its output is [batch, features, dim].
//
// Errors: INVALID_ARGUMENT  the job has no such table, the data has no such
//   feature or none at all, or a feature is named twice.
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
