#include "worker/model/step_memory.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"

namespace weir {

StepMemory::StepMemory(const Graph& graph, Backend* backend)
    : graph_(graph),
      backend_(backend),
      values_(graph.tensors.size()),
      gradients_(graph.tensors.size()),
      edges_(graph.nodes.size()),
      workspaces_(graph.nodes.size()) {
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const GraphNode& node = graph_.nodes[n];
    edges_[n].resize(node.inputs.size());
    workspaces_[n].resize(node.op->traits().workspaces.size());
  }
}

StepMemory::~StepMemory() { Release(); }

void StepMemory::Release() {
  backend_->Release(arena_);
  arena_ = nullptr;
  rows_ = 0;
  training_ = false;
}

absl::Status StepMemory::Grow(int64_t rows, bool training) {
  // I1: a step that evaluates between two that train takes nothing away.
  rows = std::max(rows, rows_);
  training |= training_;
  // Before the new memory is asked for: a device may not have room for both.
  Release();
  std::vector<std::pair<float**, int64_t>> parts;  // target, offset
  const int64_t elements = Plan(rows, training, &parts);
  WEIR_ASSIGN_OR_RETURN(arena_, backend_->Allocate(elements));
  for (const auto& [target, offset] : parts) {
    *target = arena_ + offset;
  }
  rows_ = rows;
  training_ = training;
  return absl::OkStatus();
}

int64_t StepMemory::BytesFor(int64_t rows, bool training) {
  return Plan(rows, training, nullptr) * static_cast<int64_t>(sizeof(float));
}

int64_t StepMemory::Plan(int64_t rows, bool training,
                         std::vector<std::pair<float**, int64_t>>* parts) {
  int64_t elements = 0;
  // I2: rounding every part up keeps the next one aligned.
  const AddPart add = [&](const WorkspaceSpec& size, float** target) {
    if (parts != nullptr) {
      parts->emplace_back(target, elements);
    }
    int64_t count = kElementsMax;
    if (size.per_row <= kElementsMax / std::max<int64_t>(rows, 1)) {
      count = size.fixed + rows * size.per_row;
    }
    count = (count + kAlignment - 1) / kAlignment * kAlignment;
    elements = std::min(elements + count, kElementsMax);
  };
  PlanForward(add);
  if (training) {
    PlanBackward(add);
  }
  return elements;
}

void StepMemory::PlanForward(const AddPart& add) {
  for (size_t t = 0; t < graph_.tensors.size(); ++t) {
    const GraphTensor& tensor = graph_.tensors[t];
    // Features of shared memory are read where they are.
    const bool borrowed = t == 0 && backend_->shares_host_memory();
    if (tensor.value_root == static_cast<int>(t) && !borrowed) {
      add({.per_row = tensor.info.elements()}, &values_[t]);
    }
  }
  // A layer's workspace lives from its Forward to its Backward, while all later
  // layers work, so no two share memory.
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const auto& specs = graph_.nodes[n].op->traits().workspaces;
    for (size_t i = 0; i < specs.size(); ++i) {
      add(specs[i], &workspaces_[n][i]);
    }
  }
  if (!backend_->shares_host_memory()) {
    add({.per_row = graph_.label_width()}, &labels_);
  }
  add({.per_row = 1}, &row_loss_);
  add({.per_row = 1}, &row_correct_);
}

// I3: among the readers of a tensor the one that backward meets first writes
// the gradient, the others write aside and are added. The loss has written the
// gradient of its own tensor before.
void StepMemory::PlanBackward(const AddPart& add) {
  for (size_t t = 0; t < graph_.tensors.size(); ++t) {
    const GraphTensor& tensor = graph_.tensors[t];
    if (tensor.needs_gradient && tensor.gradient_root == static_cast<int>(t)) {
      add({.per_row = tensor.info.elements()}, &gradients_[t]);
    }
  }
  std::vector<bool> written(graph_.tensors.size(), false);
  written[graph_.loss_tensor] = true;  // by the loss, before any node
  for (size_t n = graph_.nodes.size(); n-- > 0;) {
    const std::vector<int>& inputs = graph_.nodes[n].inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const GraphTensor& tensor = graph_.tensors[inputs[i]];
      if (written[inputs[i]] && tensor.needs_gradient) {
        add({.per_row = tensor.info.elements()}, &edges_[n][i]);
      }
      written[inputs[i]] = true;
    }
  }
}

}  // namespace weir
