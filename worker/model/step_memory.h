// Holds the device memory of a network's steps: values and gradients of
// tensors, workspaces of layers, and what the loss reads and writes.
//
// Place: Network has one, and points its layers' contexts at these addresses.
//
// Terms
//   root   the tensor that owns the memory which several share; see graph.h.
//   edge   an input of a node whose gradient is written to memory of its own
//          and then added, because several nodes read that tensor.
//
// Invariants
//   I1. All of it is one allocation. It is replaced only for more rows than
//       ever before, or for the first training, and then holds both.
//   I2. Parts never overlap, and each begins at a multiple of kAlignment.
//   I3. Of the nodes that read a tensor with a gradient, the one that backward
//       meets first has no edge for it; every other one has. Backward begins
//       with the gradient of the loss, so every reader of that tensor has one.
// Threads: compatible.
// Owns/borrows: owns the allocation; borrows graph and backend.
// Errors: RESOURCE_EXHAUSTED  no memory. Nothing is held then.
#ifndef WORKER_MODEL_STEP_MEMORY_H_
#define WORKER_MODEL_STEP_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "worker/compute/backend.h"
#include "worker/model/graph.h"

namespace weir {

class StepMemory {
 public:
  // In floats: the widest access of any backend, and whole cache lines.
  static constexpr int64_t kAlignment = 64;
  // No backend has so much. Their bytes fit an int64_t, and so does the sum of
  // two of it.
  static constexpr int64_t kElementsMax = int64_t{1} << 60;

  // Both must outlive this.
  StepMemory(const Graph& graph, Backend* backend);
  ~StepMemory();
  StepMemory(const StepMemory&) = delete;
  StepMemory& operator=(const StepMemory&) = delete;

  // Whether a step of `rows` fits.
  bool Holds(int64_t rows, bool training) const {
    return rows <= rows_ && (training_ || !training);
  }
  // Makes room for a step of `rows`. Every address changes, and contents are
  // lost. REQUIRES: !Holds(rows, training); no step is under way.
  absl::Status Grow(int64_t rows, bool training);
  // The bytes that an empty one would ask its backend for.
  int64_t BytesFor(int64_t rows, bool training);
  // The rows that there is room for.
  int64_t rows() const { return rows_; }

  // A tensor's values, [rows, elements]. Null for the features where the
  // backend shares the host's memory: there they are read where they are.
  float* value(int tensor) const {
    return values_[graph_.tensors[tensor].value_root];
  }
  // A tensor's gradient, [rows, elements]. Null where nothing needs it.
  // REQUIRES: memory for training is held; so for edge.
  float* gradient(int tensor) const {
    return gradients_[graph_.tensors[tensor].gradient_root];
  }
  // The edge of a node's input, [rows, elements], or null.
  float* edge(size_t node, size_t input) const { return edges_[node][input]; }
  float* workspace(size_t node, size_t i) const { return workspaces_[node][i]; }
  // [rows, label_width]; null where the backend shares the host's memory.
  float* labels() const { return labels_; }
  // What the loss gives for each row, [rows] each.
  float* row_loss() const { return row_loss_; }
  float* row_correct() const { return row_correct_; }

 private:
  // Gives *target a place of that size.
  using AddPart = std::function<void(const WorkspaceSpec&, float** target)>;

  // Gives every part of a step its place in one allocation, and returns the
  // floats of all, kElementsMax if they are more. `parts` may be null: only the
  // size is asked for.
  int64_t Plan(int64_t rows, bool training,
               std::vector<std::pair<float**, int64_t>>* parts);
  void PlanForward(const AddPart& add);
  void PlanBackward(const AddPart& add);
  void Release();

  const Graph& graph_;
  Backend* const backend_;
  float* arena_ = nullptr;
  int64_t rows_ = 0;
  bool training_ = false;
  // By tensor; null where another is the root.
  std::vector<float*> values_;
  std::vector<float*> gradients_;
  // By node and input, by node and workspace.
  std::vector<std::vector<float*>> edges_;
  std::vector<std::vector<float*>> workspaces_;
  float* labels_ = nullptr;
  float* row_loss_ = nullptr;
  float* row_correct_ = nullptr;
};

}  // namespace weir

#endif  // WORKER_MODEL_STEP_MEMORY_H_
