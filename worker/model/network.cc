#include "worker/model/network.h"

#include <cmath>
#include <tuple>

#include "common/random.h"
#include "common/status.h"

namespace weir {

Network::Network(Graph graph, Backend* backend)
    : graph_(std::move(graph)),
      backend_(backend),
      values_(graph_.tensors.size()),
      tensor_gradients_(graph_.tensors.size()),
      edge_gradients_(graph_.nodes.size()),
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
    edge_gradients_[n].resize(node.inputs.size());
  }
}

Network::~Network() {
  ReleaseAll();
  backend_->Release(parameters_);
  backend_->Release(gradients_);
}

absl::StatusOr<std::unique_ptr<Network>> Network::Create(
    const Model& spec, const std::vector<int64_t>& sample_shape,
    Backend* backend, const NetworkOptions& options) {
  WEIR_ASSIGN_OR_RETURN(Graph graph, BuildGraph(spec, sample_shape));
  std::unique_ptr<Network> network(new Network(std::move(graph), backend));
  if (options.rows_reserved > 0) {
    WEIR_RETURN_IF_ERROR(network->Reserve(options.rows_reserved, false));
  }
  return network;
}

absl::Status Network::Bind(const Layout& layout, float* parameters,
                           float* gradients) {
  std::vector<int64_t> begins;
  for (const VariableSpec& variable : graph_.variables) {
    const int v = layout.Find(variable.name);
    if (v < 0 || layout.variables()[v].shape != variable.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          "variable '", variable.name, "' of the model is ",
          v < 0 ? "not in the layout" : "in the layout with another shape"));
    }
    begins.push_back(layout.flat_begin(v));
  }
  backend_->Release(parameters_);
  backend_->Release(gradients_);
  parameters_ = gradients_ = nullptr;
  WEIR_ASSIGN_OR_RETURN(
      parameters_, backend_->MirrorHost(parameters, layout.flat_elements()));
  if (gradients != nullptr) {
    WEIR_ASSIGN_OR_RETURN(
        gradients_, backend_->MirrorHost(gradients, layout.flat_elements()));
  }
  host_parameters_ = parameters;
  host_gradients_ = gradients;
  begins_ = std::move(begins);
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    LayerContext& context = contexts_[n];
    for (size_t i = 0; i < context.parameters.size(); ++i) {
      const int64_t begin = begins_[graph_.nodes[n].first_variable + i];
      context.parameters[i] = parameters_ + begin;
      context.gradients[i] =
          gradients_ == nullptr ? nullptr : gradients_ + begin;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<float*> Network::Allocate(int64_t elements) {
  WEIR_ASSIGN_OR_RETURN(float* p, backend_->Allocate(elements));
  allocated_.push_back(p);
  return p;
}

void Network::ReleaseAll() {
  for (float* p : allocated_) {
    backend_->Release(p);
  }
  allocated_.clear();
  rows_reserved_ = 0;
  training_reserved_ = false;
}

absl::Status Network::Reserve(int64_t rows, bool training) {
  if (rows > rows_reserved_) {
    const bool trained = training_reserved_;
    ReleaseAll();
    training |= trained;
    for (size_t t = 0; t < graph_.tensors.size(); ++t) {
      const GraphTensor& tensor = graph_.tensors[t];
      // Features of shared memory are read where they are.
      const bool borrowed = t == 0 && backend_->shares_host_memory();
      if (tensor.value_root == static_cast<int>(t) && !borrowed) {
        WEIR_ASSIGN_OR_RETURN(values_[t],
                              Allocate(rows * tensor.info.elements()));
      }
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const auto& specs = graph_.nodes[n].op->traits().workspaces;
      for (size_t i = 0; i < specs.size(); ++i) {
        WEIR_ASSIGN_OR_RETURN(
            contexts_[n].workspaces[i],
            Allocate(specs[i].fixed + rows * specs[i].per_row));
      }
    }
    if (!backend_->shares_host_memory()) {
      WEIR_ASSIGN_OR_RETURN(staged_labels_, Allocate(rows * label_width()));
      host_outputs_.resize(rows * output_width());
      host_row_loss_.resize(rows);
      host_row_correct_.resize(rows);
    }
    WEIR_ASSIGN_OR_RETURN(row_loss_, Allocate(rows));
    WEIR_ASSIGN_OR_RETURN(row_correct_, Allocate(rows));
    rows_reserved_ = rows;
  }
  if (training && !training_reserved_) {
    WEIR_RETURN_IF_ERROR(ReserveTraining(rows_reserved_));
  }
  return absl::OkStatus();
}

// The gradients of tensors. Among several consumers the one that backward
// meets first writes, the others write aside and are added.
absl::Status Network::ReserveTraining(int64_t rows) {
  for (size_t t = 0; t < graph_.tensors.size(); ++t) {
    const GraphTensor& tensor = graph_.tensors[t];
    if (tensor.needs_gradient && tensor.gradient_root == static_cast<int>(t)) {
      WEIR_ASSIGN_OR_RETURN(tensor_gradients_[t],
                            Allocate(rows * tensor.info.elements()));
    }
  }
  std::vector<bool> written(graph_.tensors.size(), false);
  written[graph_.loss_tensor] = true;
  for (size_t n = graph_.nodes.size(); n-- > 0;) {
    const std::vector<int>& inputs = graph_.nodes[n].inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const GraphTensor& tensor = graph_.tensors[inputs[i]];
      edge_gradients_[n][i] = nullptr;
      float* target = tensor_gradients_[tensor.gradient_root];
      if (written[inputs[i]] && tensor.needs_gradient) {
        WEIR_ASSIGN_OR_RETURN(target, Allocate(rows * tensor.info.elements()));
        edge_gradients_[n][i] = target;
      }
      written[inputs[i]] = true;
      contexts_[n].input_gradients[i] =
          tensor.needs_gradient ? target : nullptr;
    }
    const GraphTensor& output = graph_.tensors[graph_.nodes[n].output];
    contexts_[n].output_gradient = tensor_gradients_[output.gradient_root];
  }
  training_reserved_ = true;
  return absl::OkStatus();
}

absl::Status Network::CheckBatch(const float* labels, int64_t rows) const {
  if (parameters_ == nullptr) {
    return absl::FailedPreconditionError("the network is not bound");
  }
  if (rows < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", rows, " rows; it must be >= 1"));
  }
  if (labels == nullptr || loss() == LossKind::kMeanSquaredError) {
    return absl::OkStatus();
  }
  const bool softmax = loss() == LossKind::kSoftmaxCrossEntropy;
  const int64_t classes = softmax ? output_width() : 2;
  for (int64_t r = 0; r < rows; ++r) {
    const float label = labels[r];
    if (!(label >= 0.0f && label < static_cast<float>(classes)) ||
        label != std::floor(label)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "row ", r, ": label ", label, " is not one of 0..", classes - 1,
          softmax ? absl::StrCat(" (the model has ", classes, " classes)")
                  : std::string(" (sigmoid cross-entropy)")));
    }
  }
  return absl::OkStatus();
}

void Network::PointContexts(const float* features, int64_t rows, bool training,
                            uint64_t seed) {
  const float* staged =
      backend_->Stage(values_[0], features, rows * feature_elements());
  const auto value = [&](int tensor) -> const float* {
    const int root = graph_.tensors[tensor].value_root;
    return root == 0 ? staged : values_[root];
  };
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const GraphNode& node = graph_.nodes[n];
    LayerContext& context = contexts_[n];
    context.rows = rows;
    context.training = training;
    keys_[n] = MixKey(seed, node.layer_index);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      context.inputs[i] = value(node.inputs[i]);
    }
    context.output = values_[graph_.tensors[node.output].value_root];
  }
  backend_->SetKeys(keys_);
}

absl::Status Network::Forward(const std::function<absl::Status(int)>& before) {
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const GraphNode& node = graph_.nodes[n];
    LayerContext& context = contexts_[n];
    const auto& variables = node.op->traits().variables;
    for (size_t i = 0; i < variables.size(); ++i) {
      const int v = node.first_variable + static_cast<int>(i);
      if (variables[i].kind == VariableKind::kBuffer && context.training) {
        continue;
      }
      if (before) {
        WEIR_RETURN_IF_ERROR(before(v));
      }
      backend_->Upload(parameters_ + begins_[v], host_parameters_ + begins_[v],
                       variables[i].elements());
    }
    node.op->Forward(context);
  }
  return absl::OkStatus();
}

absl::Status Network::Backward(const StepHooks& hooks) {
  for (size_t n = graph_.nodes.size(); n-- > 0;) {
    const GraphNode& node = graph_.nodes[n];
    const GraphTensor& output = graph_.tensors[node.output];
    if (!output.needs_gradient) {
      continue;
    }
    LayerContext& context = contexts_[n];
    node.op->Backward(context);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const float* edge = edge_gradients_[n][i];
      if (edge != nullptr) {
        const GraphTensor& input = graph_.tensors[node.inputs[i]];
        float* sum = tensor_gradients_[input.gradient_root];
        backend_->Add(context.rows * input.info.elements(), sum, edge, sum);
      }
    }
    const auto& variables = node.op->traits().variables;
    for (size_t i = variables.size(); i-- > 0;) {
      const int v = node.first_variable + static_cast<int>(i);
      backend_->Download(host_gradients_ + begins_[v], gradients_ + begins_[v],
                         variables[i].elements());
      pending_.push_back({.variable = v, .mark = backend_->Mark()});
    }
    WEIR_RETURN_IF_ERROR(Publish(hooks, /*wait=*/false));
  }
  return Publish(hooks, /*wait=*/true);
}

absl::Status Network::Publish(const StepHooks& hooks, bool wait) {
  while (!pending_.empty()) {
    const Pending next = pending_.front();
    if (wait) {
      backend_->Wait(next.mark);
    } else if (!backend_->Reached(next.mark)) {
      return absl::OkStatus();
    }
    // Never hand out what a failed operation left behind.
    WEIR_RETURN_IF_ERROR(backend_->TakeStatus());
    pending_.pop_front();
    if (hooks.gradient_ready) {
      WEIR_RETURN_IF_ERROR(hooks.gradient_ready(next.variable));
    }
  }
  return absl::OkStatus();
}

std::pair<double, int64_t> Network::SumRowResults(int64_t rows) {
  const float* losses = backend_->Fetch(host_row_loss_.data(), row_loss_, rows);
  const float* hits =
      backend_->Fetch(host_row_correct_.data(), row_correct_, rows);
  backend_->Wait(backend_->Mark());
  double sum = 0.0;
  int64_t correct = 0;
  for (int64_t r = 0; r < rows; ++r) {
    sum += losses[r];
    correct += hits[r] > 0.5f ? 1 : 0;
  }
  return {sum, correct};
}

absl::StatusOr<StepResult> Network::TrainStep(const float* features,
                                              const float* labels, int64_t rows,
                                              uint64_t contribution_seed,
                                              const StepHooks& hooks) {
  if (gradients_ == nullptr) {
    return absl::FailedPreconditionError(
        "the network is not bound to gradients; it cannot train");
  }
  if (labels == nullptr) {
    return absl::InvalidArgumentError("training needs labels");
  }
  WEIR_RETURN_IF_ERROR(CheckBatch(labels, rows));
  WEIR_RETURN_IF_ERROR(Reserve(rows, /*training=*/true));
  pending_.clear();  // of a step that a hook ended
  PointContexts(features, rows, /*training=*/true, contribution_seed);
  WEIR_RETURN_IF_ERROR(Forward(hooks.before_layer_parameters));
  const GraphTensor& output = graph_.tensors[graph_.loss_tensor];
  backend_->Loss(graph_.loss, rows, output_width(), values_[output.value_root],
                 backend_->Stage(staged_labels_, labels, rows * label_width()),
                 row_loss_, row_correct_,
                 tensor_gradients_[output.gradient_root]);
  WEIR_RETURN_IF_ERROR(Backward(hooks));
  const auto [loss_sum, correct] = SumRowResults(rows);
  WEIR_RETURN_IF_ERROR(backend_->TakeStatus());
  return StepResult{.loss = loss_sum / static_cast<double>(rows),
                    .correct = correct};
}

absl::StatusOr<EvaluateResult> Network::Evaluate(const float* features,
                                                 const float* labels,
                                                 int64_t rows) {
  WEIR_RETURN_IF_ERROR(CheckBatch(labels, rows));
  WEIR_RETURN_IF_ERROR(Reserve(rows, /*training=*/false));
  PointContexts(features, rows, /*training=*/false, /*seed=*/0);
  WEIR_RETURN_IF_ERROR(Forward(nullptr));
  const float* output = values_[graph_.tensors[graph_.loss_tensor].value_root];
  EvaluateResult result;
  if (labels != nullptr) {
    backend_->Loss(
        graph_.loss, rows, output_width(), output,
        backend_->Stage(staged_labels_, labels, rows * label_width()),
        row_loss_, row_correct_, /*dx=*/nullptr);
    std::tie(result.loss_sum, result.correct) = SumRowResults(rows);
  }
  result.outputs = {
      backend_->Fetch(host_outputs_.data(), output, rows * output_width()),
      static_cast<size_t>(rows * output_width())};
  backend_->Wait(backend_->Mark());
  WEIR_RETURN_IF_ERROR(backend_->TakeStatus());
  return result;
}

}  // namespace weir
