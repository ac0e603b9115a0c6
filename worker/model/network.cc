#include "worker/model/network.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "common/base/logging.h"
#include "common/base/status.h"
#include "common/math/random.h"

namespace weir {
Network::Network(Graph graph, Backend* backend, const NetworkOptions& options)
    : graph_(std::move(graph)),
      backend_(backend),
      options_(options),
      input_(feature_elements(), options.transfers, backend),
      tables_(graph_.tables, backend),
      memory_(graph_, backend),
      contexts_(graph_.nodes.size()),
      keys_(graph_.nodes.size()) {
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const GraphNode& node = graph_.nodes[n];
    const LayerTraits& traits = node.op->traits();
    LayerContext& context = contexts_[n];
    context.backend = backend_;
    context.key_index = static_cast<int>(n);
    context.inputs.resize(node.inputs.size());
    context.input_gradients.resize(node.inputs.size());
    context.parameters.resize(traits.variables.size());
    context.gradients.resize(traits.variables.size());
    context.workspaces.resize(traits.workspaces.size());
  }
}

Network::~Network() {
  backend_->Release(parameters_);
  backend_->Release(gradients_);
}

absl::StatusOr<std::unique_ptr<Network>> Network::Create(
    const Model& spec, const std::vector<int64_t>& sample_shape,
    Backend* backend, const NetworkOptions& options) {
  WEIR_ASSIGN_OR_RETURN(Graph graph,
                        BuildGraph(spec, sample_shape, options.sparse));
  std::unique_ptr<Network> network(
      new Network(std::move(graph), backend, options));
  if (options.rows_reserved > 0) {
    WEIR_RETURN_IF_ERROR(network->Reserve(options.rows_reserved, false));
  }
  return network;
}

absl::Status Network::Bind(const Layout& layout, float* parameters,
                           float* gradients) {
  // All checks come first, so that a layout which does not fit changes nothing.
  std::vector<int64_t> begins;
  for (const VariableSpec& variable : graph_.variables) {
    const int v = layout.Find(variable.name);
    if (v < 0 || layout.variables()[v].shape != variable.shape) {
      return Invalid(
          "variable '", variable.name, "' of the model is ",
          v < 0 ? "not in the layout" : "in the layout with another shape");
    }
    begins.push_back(layout.flat_begin(v));
  }
  DropCapture();  // its operations have the old addresses in them
  backend_->Release(parameters_);
  backend_->Release(gradients_);
  parameters_ = gradients_ = nullptr;
  if (parameters != nullptr) {
    WEIR_ASSIGN_OR_RETURN(
        parameters_, backend_->MirrorHost(parameters, layout.flat_elements()));
  } else {
    WEIR_ASSIGN_OR_RETURN(parameters_,
                          backend_->Allocate(layout.flat_elements()));
  }
  if (options_.keeps_gradients) {
    WEIR_ASSIGN_OR_RETURN(gradients_,
                          backend_->Allocate(layout.flat_elements()));
  } else if (gradients != nullptr) {
    WEIR_ASSIGN_OR_RETURN(
        gradients_, backend_->MirrorHost(gradients, layout.flat_elements()));
  }
  host_parameters_ = parameters;
  host_gradients_ = gradients;
  begins_ = std::move(begins);
  parameter_elements_ = layout.flat_elements();
  if (!options_.transfers && parameters != nullptr) {
    backend_->Upload(parameters_, host_parameters_, parameter_elements_);
  }
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    LayerContext& context = contexts_[n];
    for (size_t i = 0; i < context.parameters.size(); ++i) {
      const int64_t begin = begins_[graph_.nodes[n].first_variable + i];
      context.parameters[i] = parameters_ + begin;
      context.gradients[i] = nullptr;
      if (gradients_ != nullptr) {
        context.gradients[i] = gradients_ + begin;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Network::Reserve(int64_t rows, bool training) {
  if (memory_.Holds(rows, training)) {
    return absl::OkStatus();
  }
  // All addresses change: a captured step has the old ones in it, and what was
  // staged there is gone.
  DropCapture();
  input_.Forget();
  staged_labels_ = nullptr;
  WEIR_RETURN_IF_ERROR(memory_.Grow(rows, training));
  PointMemory(memory_.Holds(rows, /*training=*/true));
  if (!backend_->shares_host_memory()) {
    host_outputs_.resize(memory_.rows() * output_width());
    host_row_loss_.resize(memory_.rows());
    host_row_correct_.resize(memory_.rows());
  }
  return absl::OkStatus();
}

void Network::PointMemory(bool training) {
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const GraphNode& node = graph_.nodes[n];
    LayerContext& context = contexts_[n];
    for (size_t i = 0; i < context.workspaces.size(); ++i) {
      context.workspaces[i] = memory_.workspace(n, i);
    }
    if (!training) {
      continue;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int input = node.inputs[i];
      // Null tells the layer that nobody reads this gradient. An edge keeps it
      // from overwriting what another consumer of the tensor has written.
      context.input_gradients[i] = nullptr;
      if (graph_.tensors[input].needs_gradient) {
        float* const edge = memory_.edge(n, i);
        context.input_gradients[i] =
            edge != nullptr ? edge : memory_.gradient(input);
      }
    }
    context.output_gradient = memory_.gradient(node.output);
  }
}

absl::Status Network::CheckBatch(const float* labels, int64_t rows) const {
  if (parameters_ == nullptr && !graph_.variables.empty()) {
    return absl::FailedPreconditionError("the network is not bound");
  }
  if (rows < 1) {
    return Invalid("a batch of ", rows, " rows; it must be >= 1");
  }
  // A backend uses the label as an index, so none may be out of range.
  for (int64_t r = 0; labels != nullptr && r < rows; ++r) {
    const absl::Status good = CheckLabel(labels[r]);
    if (!good.ok()) {
      return Annotate(good, absl::StrCat("row ", r));
    }
  }
  return absl::OkStatus();
}

absl::Status Network::CheckLabel(float label) const {
  const bool softmax = loss() == LossKind::kSoftmaxCrossEntropy;
  const int64_t classes = softmax ? output_width() : 2;
  // NaN fails these comparisons.
  if (loss() == LossKind::kMeanSquaredError ||
      (label >= 0.0f && label < static_cast<float>(classes) &&
       label == std::floor(label))) {
    return absl::OkStatus();
  }
  std::string loss_text = " (sigmoid cross-entropy)";
  if (softmax) {
    loss_text = absl::StrCat(" (the model has ", classes, " classes)");
  }
  return Invalid("label ", label, " is not one of 0..", classes - 1, loss_text);
}

absl::Status Network::CheckTraining(const float* labels, int64_t rows) const {
  if (gradients_ == nullptr && !graph_.variables.empty()) {
    return absl::FailedPreconditionError(
        "the network is not bound to gradients; it cannot train");
  }
  if (labels == nullptr) {
    return absl::InvalidArgumentError("training needs labels");
  }
  return CheckBatch(labels, rows);
}

absl::Status Network::BeginStep(const Features& features, const float* labels,
                                int64_t rows,
                                std::span<const TableInput> tables,
                                bool training, uint64_t seed) {
  WEIR_RETURN_IF_ERROR(Reserve(rows, training));
  WEIR_RETURN_IF_ERROR(tables_.Begin(tables, rows, training));
  pending_.clear();  // a hook may have ended the step before
  rows_ = rows;
  WEIR_ASSIGN_OR_RETURN(const float* const staged,
                        input_.Stage(features, rows, memory_.value(0)));
  PointContexts(staged, training, seed);
  labels_ = nullptr;
  if (labels != nullptr) {
    StageLabels(labels);
  }
  return absl::OkStatus();
}

void Network::StageLabels(const float* labels) {
  labels_ = memory_.labels();
  // Without transfers a batch at the same address is on the device already.
  if (options_.transfers || backend_->shares_host_memory() ||
      staged_labels_ != labels || staged_label_rows_ != rows_) {
    labels_ = backend_->Stage(memory_.labels(), labels, rows_ * label_width());
    staged_labels_ = labels;
    staged_label_rows_ = rows_;
  }
}

void Network::PointContexts(const float* staged, bool training, uint64_t seed) {
  // Where memory is shared, `staged` is the caller's: views of it are, too.
  const auto value = [&](int tensor) -> const float* {
    if (graph_.tensors[tensor].value_root == 0) {
      return staged;
    }
    return memory_.value(tensor);
  };
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const GraphNode& node = graph_.nodes[n];
    LayerContext& context = contexts_[n];
    context.rows = rows_;
    context.training = training;
    // I2: by the layer's place in the JobSpec, not by the node's, so that a
    // change of format that the builder puts in between changes no mask.
    keys_[n] = MixKey(seed, node.layer_index);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      context.inputs[i] = value(node.inputs[i]);
    }
    context.output = memory_.value(node.output);
    if (node.table >= 0) {
      context.table = tables_.context(node.table, node.use);
    }
  }
  backend_->SetKeys(keys_);
}

absl::Status Network::Fetch(int v, const BeforeRead& before) {
  if (before) {
    WEIR_RETURN_IF_ERROR(before(v));
  }
  const int64_t elements = graph_.variables[v].elements();
  if (host_parameters_ == nullptr) {
    backend_->NoteUploaded(parameters_ + begins_[v], elements);
  } else if (options_.transfers) {
    backend_->Upload(parameters_ + begins_[v], host_parameters_ + begins_[v],
                     elements);
  }
  return absl::OkStatus();
}

absl::Status Network::FetchOf(size_t n, bool training,
                              const BeforeRead& before) {
  const GraphNode& node = graph_.nodes[n];
  const auto& variables = node.op->traits().variables;
  for (size_t i = 0; i < variables.size(); ++i) {
    // Training reads no buffer, so it does not wait for one either.
    if (variables[i].kind == VariableKind::kTrained || !training) {
      WEIR_RETURN_IF_ERROR(
          Fetch(node.first_variable + static_cast<int>(i), before));
    }
  }
  return absl::OkStatus();
}

void Network::ForwardOf(size_t n) { graph_.nodes[n].op->Forward(contexts_[n]); }

absl::Status Network::Forward(bool training, const BeforeRead& before) {
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    WEIR_RETURN_IF_ERROR(FetchOf(n, training, before));
    ForwardOf(n);
  }
  return absl::OkStatus();
}

void Network::ComputeLoss(bool training) {
  const int output = graph_.loss_tensor;
  float* gradient = nullptr;  // evaluation wants none
  if (training) {
    gradient = memory_.gradient(output);
  }
  backend_->Run(op::Loss{graph_.loss, rows_, output_width(),
                         memory_.value(output), labels_, memory_.row_loss(),
                         memory_.row_correct(), gradient});
}

bool Network::Trains(size_t n) const {
  return graph_.tensors[graph_.nodes[n].output].needs_gradient;
}

void Network::BackwardOf(size_t n) {
  const GraphNode& node = graph_.nodes[n];
  LayerContext& context = contexts_[n];
  node.op->Backward(context);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    // Always in the order of backward, so that the sum has the same bits (I2).
    const float* edge = memory_.edge(n, i);
    if (edge != nullptr) {
      const GraphTensor& input = graph_.tensors[node.inputs[i]];
      float* sum = memory_.gradient(node.inputs[i]);
      backend_->Run(
          op::Add{context.rows * input.info.elements(), sum, edge, sum});
    }
  }
}

void Network::SendGradients(size_t n) {
  const GraphNode& node = graph_.nodes[n];
  const auto& variables = node.op->traits().variables;
  // I1: a variable belongs to one node, and backward runs each node once. The
  // download covers the variable's elements alone, not the padding behind it.
  for (size_t i = variables.size(); i-- > 0;) {
    const int v = node.first_variable + static_cast<int>(i);
    if (options_.transfers && !options_.keeps_gradients) {
      backend_->Download(host_gradients_ + begins_[v], gradients_ + begins_[v],
                         variables[i].elements());
    }
    pending_.push_back({.variable = v, .mark = backend_->Mark()});
  }
  if (node.use == 0) {  // backward meets a table's first use last
    tables_.Download(node.table);
    pending_.push_back({.variable = -1 - node.table, .mark = backend_->Mark()});
  }
}

absl::Status Network::Backward(const StepHooks* hooks) {
  for (size_t n = graph_.nodes.size(); n-- > 0;) {
    if (Trains(n)) {
      BackwardOf(n);
      SendGradients(n);
      // Gradients that are there already leave while earlier layers compute.
      if (hooks != nullptr) {
        WEIR_RETURN_IF_ERROR(Publish(*hooks, /*wait=*/false));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Network::TakeGradient() {
  backend_->Wait(pending_.front().mark);
  pending_.pop_front();
  // Never hand out what a failed operation left behind.
  return backend_->TakeStatus();
}

// In the order of backward, in which the receiver's blocks become complete. A
// gradient that is late holds back those behind it.
absl::Status Network::Publish(const StepHooks& hooks, bool wait) {
  while (!pending_.empty() &&
         (wait || backend_->Reached(pending_.front().mark))) {
    const int variable = pending_.front().variable;
    WEIR_RETURN_IF_ERROR(TakeGradient());
    if (variable >= 0 && hooks.gradient_ready) {
      WEIR_RETURN_IF_ERROR(hooks.gradient_ready(variable));
    } else if (variable < 0 && hooks.table_gradient_ready) {
      WEIR_RETURN_IF_ERROR(hooks.table_gradient_ready(-1 - variable));
    }
  }
  return absl::OkStatus();
}

void Network::DropCapture() {
  plain_rows_ = 0;
  captured_rows_ = 0;
}

bool Network::WantsCapture(const StepHooks& hooks) const {
  // Tables have other sizes in every step. And the first step of so many rows
  // runs as it comes: BeginCapture needs operations that have run before.
  return can_capture_ && plain_rows_ == rows_ && graph_.tables.empty() &&
         (!hooks.before_layer_parameters ||
          parameter_elements_ <= kCaptureElementsMax);
}

void Network::Capture() {
  can_capture_ = backend_->BeginCapture();
  if (!can_capture_) {
    return;
  }
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    ForwardOf(n);
  }
  ComputeLoss(/*training=*/true);
  Backward(nullptr).IgnoreError();  // only hooks fail
  // These count from the capture's begin; Replay adds where a replay begins.
  captured_marks_.assign(pending_.begin(), pending_.end());
  pending_.clear();
  if (const absl::Status status = backend_->EndCapture(); !status.ok()) {
    LOG_WARN("{}: small steps will be slower, they cannot be captured: {}",
             backend_->name(), std::string(status.message()));
    can_capture_ = false;
    return;
  }
  captured_rows_ = rows_;
}

absl::Status Network::RunStep(const StepHooks& hooks) {
  const bool fetched = WantsCapture(hooks);
  if (fetched) {
    // A capture has no place for the host to wait, so all values come first.
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      WEIR_RETURN_IF_ERROR(
          FetchOf(n, /*training=*/true, hooks.before_layer_parameters));
    }
    if (captured_rows_ != rows_) {
      Capture();
    }
    if (captured_rows_ == rows_) {
      const uint64_t base = backend_->Replay();
      for (const Pending& captured : captured_marks_) {
        pending_.push_back({captured.variable, base + captured.mark});
      }
      // plain_rows_ stays, so the next step of these rows is replayed, too.
      return Publish(hooks, /*wait=*/true);
    }
  }
  // Where nothing could be captured the values are there already.
  WEIR_RETURN_IF_ERROR(Forward(
      /*training=*/true, fetched ? nullptr : hooks.before_layer_parameters));
  ComputeLoss(/*training=*/true);
  WEIR_RETURN_IF_ERROR(Backward(&hooks));
  WEIR_RETURN_IF_ERROR(Publish(hooks, /*wait=*/true));
  plain_rows_ = rows_;
  captured_rows_ = 0;  // it may have moved scratch that the capture uses
  return absl::OkStatus();
}

std::pair<double, int64_t> Network::SumRowResults() {
  const float* losses =
      backend_->Fetch(host_row_loss_.data(), memory_.row_loss(), rows_);
  const float* hits =
      backend_->Fetch(host_row_correct_.data(), memory_.row_correct(), rows_);
  backend_->Wait(backend_->Mark());
  // I2: in the order of rows, so the sum has the same bits every time.
  double sum = 0.0;
  int64_t correct = 0;
  for (int64_t r = 0; r < rows_; ++r) {
    sum += losses[r];
    if (hits[r] > 0.5f) {
      ++correct;
    }
  }
  return {sum, correct};
}

absl::StatusOr<StepResult> Network::TrainStep(
    const Features& features, const float* labels, int64_t rows,
    uint64_t contribution_seed, const StepHooks& hooks,
    std::span<const TableInput> tables) {
  WEIR_RETURN_IF_ERROR(CheckTraining(labels, rows));
  WEIR_RETURN_IF_ERROR(BeginStep(features, labels, rows, tables,
                                 /*training=*/true, contribution_seed));
  WEIR_RETURN_IF_ERROR(RunStep(hooks));
  const auto [loss_sum, correct] = SumRowResults();
  WEIR_RETURN_IF_ERROR(backend_->TakeStatus());
  return StepResult{.loss = loss_sum / static_cast<double>(rows),
                    .correct = correct};
}

absl::StatusOr<EvaluateResult> Network::Evaluate(
    const Features& features, const float* labels, int64_t rows,
    std::span<const TableInput> tables) {
  WEIR_RETURN_IF_ERROR(CheckBatch(labels, rows));
  WEIR_RETURN_IF_ERROR(BeginStep(features, labels, rows, tables,
                                 /*training=*/false, /*seed=*/0));
  WEIR_RETURN_IF_ERROR(Forward(/*training=*/false, nullptr));
  const float* output = memory_.value(graph_.loss_tensor);
  EvaluateResult result;
  // The loss does not change its input, so `output` may be read behind it.
  if (labels != nullptr) {
    ComputeLoss(/*training=*/false);
    std::tie(result.loss_sum, result.correct) = SumRowResults();
  }
  result.outputs = {
      backend_->Fetch(host_outputs_.data(), output, rows * output_width()),
      static_cast<size_t>(rows * output_width())};
  backend_->Wait(backend_->Mark());
  WEIR_RETURN_IF_ERROR(backend_->TakeStatus());
  return result;
}

}  // namespace weir
