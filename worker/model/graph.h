// Turns a JobSpec's model into a checked graph of nodes, tensors and variables.
//
// Place: Network builds one, and adds memory and steps. A graph knows no
//   backend.
//
// Terms
//   tensor 0  the data input "features". It has no elements where the data has
//             categorical features alone.
//   root      the tensor whose memory a tensor uses: itself, or an earlier one
//             (for views and layers that work in place).
//
// Invariants
//   I1. Nodes are in forward order; a node's inputs come from earlier nodes.
//   I2. Every tensor has a consumer, or is the loss's input; so every variable
//       gets a gradient.
//   I3. Variables are in the order in which forward reads them.
// Threads: compatible.
// Errors: INVALID_ARGUMENT  names the field: "model.layer[2] 'conv1': ...".
#ifndef WORKER_MODEL_GRAPH_H_
#define WORKER_MODEL_GRAPH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/layout.h"
#include "proto/job_spec.pb.h"
#include "worker/compute/backend.h"
#include "worker/model/layers/layer_op.h"
#include "worker/model/layers/layers.h"
#include "worker/model/table_batch.h"

namespace weir {

struct GraphTensor {
  TensorInfo info;
  int consumers = 0;  // node inputs; the loss counts as one
  bool needs_gradient = false;
  int value_root = 0;
  int gradient_root = 0;
};

struct GraphNode {
  std::unique_ptr<LayerOp> op;
  std::vector<int> inputs;   // tensors
  int output = 0;            // tensor
  int first_variable = 0;    // its variables are consecutive
  uint64_t layer_index = 0;  // in the JobSpec
  int table = -1;            // index into Graph::tables; -1: reads no table
  int use = -1;              // index into the table's uses
};

// A table that the model reads.
struct GraphTable {
  std::string name;
  int64_t dim = 0;
  std::vector<TableUse> uses;  // by node that reads it, in forward order
};

struct Graph {
  std::vector<GraphTensor> tensors;
  std::vector<GraphNode> nodes;
  std::vector<VariableSpec> variables;
  std::vector<GraphTable> tables;  // in the order in which forward reads them
  LossKind loss = LossKind::kSoftmaxCrossEntropy;
  int loss_tensor = 0;

  // Columns of the loss's input.
  int64_t output_width() const { return tensors[loss_tensor].info.elements(); }
  // Floats of one sample's label.
  int64_t label_width() const {
    return loss == LossKind::kMeanSquaredError ? output_width() : 1;
  }
};

// `sample_shape` is the shape of the features without the batch. It may be
// empty or {0} where `sparse` has features.
absl::StatusOr<Graph> BuildGraph(const Model& spec,
                                 const std::vector<int64_t>& sample_shape,
                                 const SparseSpec& sparse = {});

}  // namespace weir

#endif  // WORKER_MODEL_GRAPH_H_
