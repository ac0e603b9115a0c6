// The contract of a layer: shapes at build time, forward and backward on a
// backend.
//
// Place: Network owns one LayerOp for each node of its graph, gives it its
//   pointers before each step, and knows no kind of layer. A new kind is a new
//   file, a maker in layers.h and a line in factory.cc.
//
// Terms
//   dims     a tensor's shape without the batch, in the order of a JobSpec:
//            images are [channels, height, width].
//   format   how an image lies in memory. All other tensors are plain.
//   view     a layer whose output is its input's memory.
//
// What every layer promises
//   Forward overwrites the output. Backward overwrites every gradient in
//   `gradients` and every non-null one in `input_gradients`. Backward reads the
//   inputs as Forward saw them, and reads the output only where `keeps_output`
//   says so: the graph may let a later layer overwrite it otherwise.
// Threads: compatible.
// Errors: INVALID_ARGUMENT  from the makers; the graph adds the layer's path.
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

// Returns INVALID_ARGUMENT when the product of `dims` is over Layout's bound,
// or a dimension is < 1. `what` names the tensor.
absl::Status CheckSize(const std::string& what,
                       const std::vector<int64_t>& dims);

// Returns INVALID_ARGUMENT "input is [batch, 3], <takes>".
absl::Status WrongInput(const TensorInfo& input, const std::string& takes);

// Makes a variable that trains, in group 0.
VariableSpec TrainedVariable(const std::string& name,
                             std::vector<int64_t> shape, InitSpec init);

// Memory of one layer that lives from Forward to Backward: `fixed` floats, and
// `per_row` for each row of the batch.
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
  // The output may have the memory of input 0, and the gradient of input 0 that
  // of the output's gradient.
  bool in_place = false;
  bool keeps_output = false;  // Backward reads the output
  std::optional<TableRead> table = {};
};

// A layer's part of its table in one step; all are device pointers.
struct TableContext {
  const float* rows = nullptr;  // [ids, dim]
  RowLists bags;                // for every bag its rows
  RowLists users;               // for every row its bags
  float* gradients = nullptr;   // [ids, dim]
  // True: Backward adds to `gradients`, which another layer has written. False:
  // it overwrites them.
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

  // Null where the layer has no variable i, such as a bias.
  const float* parameter(size_t i) const {
    return i < parameters.size() ? parameters[i] : nullptr;
  }
  float* gradient(size_t i) const {
    return i < gradients.size() ? gradients[i] : nullptr;
  }
};

// Copies the inputs side by side: of each of `rows` rows, widths[i] columns are
// those of input i.
void JoinColumns(const LayerContext& c, int64_t rows,
                 const std::vector<int64_t>& widths, float* joined);
// Copies the columns of `joined` to the inputs' gradients that are wanted.
void SplitColumns(const LayerContext& c, int64_t rows,
                  const std::vector<int64_t>& widths, const float* joined);

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
