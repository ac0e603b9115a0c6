// The contract of a layer: shapes at build time, forward and backward on a
// backend.
//
// Place: Network owns one LayerOp per node of its graph, gives it its pointers
// before each step, and knows of no kind of layer. A new kind is a new file, a
// BUILD line and a line in factory.cc.
//
// Terms
//   dims     a tensor's shape without the batch, in the order a JobSpec speaks
//            of: images are [channels, height, width].
//   format   how an image lies in memory. Tensors that are no images are plain.
//   view     a layer whose output is its input's memory.
//
// Invariants
//   I1. Forward overwrites the output; Backward overwrites every gradient in
//       `gradients` and every non-null one in `input_gradients`.
//   I2. Backward reads inputs as Forward saw them, and the output only where
//       `keeps_output` says so.
// Threads: compatible.
// Errors: INVALID_ARGUMENT  from the makers; Network adds the layer's path.
#ifndef WORKER_MODEL_LAYERS_LAYER_OP_H_
#define WORKER_MODEL_LAYERS_LAYER_OP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/job/layout.h"
#include "worker/compute/backend.h"
#include "worker/model/table_batch.h"

namespace weir {

enum class Format : int {
  kPlain = 0,         // row-major in the order of dims
  kChannelsLast = 1,  // images only: [height, width, channels]
};

struct TensorInfo {
  std::vector<int64_t> dims = {};
  Format format = Format::kPlain;

  bool is_image() const { return dims.size() == 3; }
  int64_t elements() const;      // of one sample
  std::string ToString() const;  // "[batch, 3, 32, 32]"
};

// INVALID_ARGUMENT when the product of `dims` is over Layout's bound, or a
// dimension is < 1; `what` names the tensor.
absl::Status CheckSize(const std::string& what,
                       const std::vector<int64_t>& dims);

VariableSpec TrainedVariable(const std::string& name,
                             std::vector<int64_t> shape, InitSpec init);

// Memory of a layer's own that lives from Forward to Backward.
struct WorkspaceSpec {
  int64_t fixed = 0;
  int64_t per_row = 0;
};

// A table that a layer reads.
struct TableRead {
  std::string table;
  int64_t dim = 0;
  TableUse use;
};

struct LayerTraits {
  TensorInfo output;
  std::vector<VariableSpec> variables = {};  // names without the layer's
  std::vector<WorkspaceSpec> workspaces = {};
  bool view = false;
  bool in_place = false;      // output may be input 0, dx may be dy
  bool keeps_output = false;  // Backward reads the output
  std::optional<TableRead> table = {};
};

// What a layer has of its table in one step; device pointers.
struct TableContext {
  const float* rows = nullptr;  // [ids, dim]
  RowLists bags;                // of every bag its rows
  RowLists users;               // of every row its bags
  float* gradients = nullptr;   // [ids, dim]
  // Backward adds to `gradients`, which another layer has written, else it
  // overwrites them.
  bool adds = false;
};

// One layer's pointers for one step; all are device pointers.
struct LayerContext {
  Backend* backend = nullptr;
  int64_t rows = 0;
  bool training = false;
  int key_index = 0;  // among the backend's keys
  std::vector<const float*> inputs;
  float* output = nullptr;
  const float* output_gradient = nullptr;
  std::vector<float*> input_gradients;   // null: nobody wants it
  std::vector<const float*> parameters;  // by traits().variables
  std::vector<float*> gradients;         // of trained; samples of buffers
  std::vector<float*> workspaces;
  TableContext table;
};

class LayerOp {
 public:
  explicit LayerOp(LayerTraits traits) : traits_(std::move(traits)) {}
  virtual ~LayerOp() = default;

  const LayerTraits& traits() const { return traits_; }
  virtual void Forward(const LayerContext& context) = 0;
  virtual void Backward(const LayerContext& context) = 0;

 protected:
  // Elements of the whole batch.
  int64_t OutputElements(const LayerContext& context) const {
    return context.rows * traits_.output.elements();
  }

 private:
  const LayerTraits traits_;
};

}  // namespace weir

#endif  // WORKER_MODEL_LAYERS_LAYER_OP_H_
