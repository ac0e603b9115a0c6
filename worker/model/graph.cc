#include "worker/model/graph.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "common/base/status.h"
#include "worker/model/layers/layers.h"

namespace weir {
namespace {

constexpr char kFeatures[] = "features";

// Names go into those of variables, which checkpoints and their readers use:
// "/" separates the layer's part, so a layer's name has none.
bool NameIsLegal(const std::string& name) {
  const auto is_legal = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= 100 &&
         std::all_of(name.begin(), name.end(), is_legal);
}

class GraphBuilder {
 public:
  explicit GraphBuilder(const SparseSpec& sparse) : sparse_(sparse) {}

  // I1, I3: layers are added in the order of the spec, each behind its inputs,
  // and bring their variables with them.
  absl::StatusOr<Graph> Build(const Model& spec,
                              const std::vector<int64_t>& sample_shape) {
    WEIR_RETURN_IF_ERROR(AddFeatures(sample_shape));
    if (spec.layer_size() == 0) {
      return absl::InvalidArgumentError("model.layer: the model has no layer");
    }
    for (int i = 0; i < spec.layer_size(); ++i) {
      const std::string path =
          absl::StrCat("model.layer[", i, "] '", spec.layer(i).name(), "'");
      WEIR_RETURN_IF_ERROR(Annotate(AddLayer(spec.layer(i), i), path));
      paths_[last_] = path;
    }
    WEIR_RETURN_IF_ERROR(SetLoss(spec.loss()));
    WEIR_RETURN_IF_ERROR(CheckEveryOutputIsUsed());
    ShareMemory();
    return std::move(graph_);
  }

 private:
  absl::Status AddFeatures(const std::vector<int64_t>& sample_shape) {
    GraphTensor features{.info = {.dims = sample_shape}};
    if (!sparse_.features.empty() &&
        (sample_shape.empty() || features.info.elements() == 0)) {
      features.info.dims = {0};
    } else if (sample_shape.empty()) {
      return absl::InvalidArgumentError("features: a sample has no dimension");
    } else {
      WEIR_RETURN_IF_ERROR(CheckSize("features", sample_shape));
    }
    graph_.tensors.push_back(std::move(features));
    by_name_[kFeatures] = 0;
    return absl::OkStatus();
  }

  absl::StatusOr<int> Lookup(const std::string& name) const {
    // I1: only earlier layers are known, so no input can make a cycle.
    const auto it = by_name_.find(name);
    if (it == by_name_.end()) {
      return Invalid("input '", name,
                     "' names no earlier layer; \"features\" is the data");
    }
    return it->second;
  }

  absl::Status AddLayer(const Layer& spec, int index) {
    if (!NameIsLegal(spec.name())) {
      return absl::InvalidArgumentError(
          "name must be 1 to 100 of [A-Za-z0-9_.-]");
    }
    if (spec.name() == kFeatures) {
      return absl::InvalidArgumentError("name is reserved for the data input");
    }
    if (by_name_.count(spec.name()) != 0) {
      return absl::InvalidArgumentError(
          "name is used by an earlier layer; names must be unique");
    }
    std::vector<int> inputs;
    for (const std::string& name : spec.input()) {
      WEIR_ASSIGN_OR_RETURN(inputs.emplace_back(), Lookup(name));
    }
    if (inputs.empty() && !spec.has_embedding_bag()) {
      inputs.push_back(last_);
    }
    // Only tensor 0 may have no elements.
    for (const int input : inputs) {
      if (graph_.tensors[input].info.elements() == 0) {
        return absl::InvalidArgumentError(
            "its input is the data's features, which are all categorical; "
            "name a layer that reads a table");
      }
    }
    // A layer that takes any format takes its first input's for all of them.
    std::optional<Format> wanted = WantedFormat(spec);
    std::vector<TensorInfo> infos;
    for (int& input : inputs) {
      input = InFormat(input, wanted);
      infos.push_back(graph_.tensors[input].info);
      if (!wanted.has_value()) {
        wanted = infos[0].format;
      }
    }
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<LayerOp> op,
                          MakeLayer({spec, infos, sparse_}));
    WEIR_RETURN_IF_ERROR(CheckSize("output", op->traits().output.dims));
    // I3: behind those of all earlier layers.
    const int first_variable = static_cast<int>(graph_.variables.size());
    for (VariableSpec variable : op->traits().variables) {
      WEIR_RETURN_IF_ERROR(CheckSize(variable.name, variable.shape));
      variable.name = absl::StrCat(spec.name(), "/", variable.name);
      graph_.variables.push_back(std::move(variable));
    }
    last_ = AddNode(std::move(op), std::move(inputs), first_variable, index);
    ReadTable(&graph_.nodes.back());
    by_name_[spec.name()] = last_;
    return absl::OkStatus();
  }

  void ReadTable(GraphNode* node) {
    const std::optional<TableRead>& read = node->op->traits().table;
    if (!read.has_value()) {
      return;
    }
    size_t t = 0;
    while (t < graph_.tables.size() && graph_.tables[t].name != read->table) {
      ++t;
    }
    if (t == graph_.tables.size()) {
      graph_.tables.push_back(
          {.name = read->table, .dim = read->dim, .uses = {}});
    }
    node->table = static_cast<int>(t);
    node->use = static_cast<int>(graph_.tables[t].uses.size());
    graph_.tables[t].uses.push_back(read->use);
  }

  int AddNode(std::unique_ptr<LayerOp> op, std::vector<int> inputs,
              int first_variable, int layer_index) {
    const int output = static_cast<int>(graph_.tensors.size());
    const LayerTraits& traits = op->traits();
    GraphTensor tensor{.info = traits.output,
                       .needs_gradient = !traits.variables.empty() ||
                                         traits.table.has_value()};
    for (const int input : inputs) {
      ++graph_.tensors[input].consumers;
      tensor.needs_gradient |= graph_.tensors[input].needs_gradient;
    }
    graph_.tensors.push_back(std::move(tensor));
    graph_.nodes.push_back({.op = std::move(op),
                            .inputs = std::move(inputs),
                            .output = output,
                            .first_variable = first_variable,
                            .layer_index = static_cast<uint64_t>(layer_index)});
    return output;
  }

  // The tensor itself, or its one copy in the other format.
  int InFormat(int tensor, std::optional<Format> format) {
    const TensorInfo& info = graph_.tensors[tensor].info;
    if (!format.has_value() || *format == info.format || !info.is_image()) {
      return tensor;
    }
    const auto it = other_format_.find(tensor);
    if (it != other_format_.end()) {
      return it->second;
    }
    // It draws no random number, so its layer index does not matter.
    const int changed =
        AddNode(MakeFormatChange(info), {tensor},
                static_cast<int>(graph_.variables.size()), /*layer_index=*/0);
    // Both ways: whoever wants the copy in the first format gets the original.
    other_format_[tensor] = changed;
    other_format_[changed] = tensor;
    return changed;
  }

  absl::Status SetLoss(const Loss& spec) {
    graph_.loss_tensor = last_;
    if (!spec.input().empty()) {
      const auto tensor = Lookup(spec.input());
      WEIR_RETURN_IF_ERROR(Annotate(tensor.status(), "model.loss"));
      graph_.loss_tensor = *tensor;
    }
    GraphTensor& tensor = graph_.tensors[graph_.loss_tensor];
    ++tensor.consumers;
    if (!tensor.needs_gradient) {
      return absl::InvalidArgumentError(
          "model.loss: its input depends on no variable and no table; nothing "
          "would train");
    }
    int64_t width_min = 1;
    int64_t width_max = Layout::kMaxFlatElements;
    std::string takes = "[batch, targets]";
    switch (spec.kind_case()) {
      case Loss::kSoftmaxCrossEntropy:
        graph_.loss = LossKind::kSoftmaxCrossEntropy;
        width_min = 2;
        takes = "[batch, classes] with two classes or more";
        break;
      case Loss::kSigmoidCrossEntropy:
        graph_.loss = LossKind::kSigmoidCrossEntropy;
        width_max = 1;
        takes = "[batch, 1]";
        break;
      case Loss::kMeanSquaredError:
        graph_.loss = LossKind::kMeanSquaredError;
        break;
      case Loss::KIND_NOT_SET:
        return absl::InvalidArgumentError(
            "model.loss: no kind is set; set one of softmax_cross_entropy, "
            "sigmoid_cross_entropy, mean_squared_error");
    }
    const std::vector<int64_t>& dims = tensor.info.dims;
    if (dims.size() != 1 || dims[0] < width_min || dims[0] > width_max) {
      return Invalid("model.loss: input is ", tensor.info.ToString(),
                     ", this loss takes ", takes);
    }
    return absl::OkStatus();
  }

  // I2. The spec's layers suffice: a change of format is added for a consumer.
  absl::Status CheckEveryOutputIsUsed() const {
    for (const auto& [tensor, path] : paths_) {
      if (graph_.tensors[tensor].consumers == 0) {
        return Invalid(
            path,
            ": no layer and not the loss uses its output; remove it, or "
            "name it in an input");
      }
    }
    return absl::OkStatus();
  }

  // Decides the roots. A value may be overwritten by its sole consumer if the
  // node that made it does not read it again in backward. A gradient may always
  // be overwritten by a layer that works element by element, if no other
  // consumer adds to it.
  void ShareMemory() {
    // The features never are: they may be the caller's memory.
    std::vector<bool> overwritable(graph_.tensors.size(), false);
    graph_.tensors[0].value_root = 0;
    for (const GraphNode& node : graph_.nodes) {
      const LayerTraits& traits = node.op->traits();
      GraphTensor& out = graph_.tensors[node.output];
      out.value_root = node.output;
      out.gradient_root = node.output;
      if (node.inputs.empty()) {  // a layer that reads a table
        overwritable[node.output] = !traits.keeps_output && out.consumers == 1;
        continue;
      }
      const GraphTensor& in = graph_.tensors[node.inputs[0]];
      const bool sole = in.consumers == 1;
      if (traits.view || (traits.in_place && overwritable[node.inputs[0]])) {
        out.value_root = in.value_root;
      }
      if (sole && (traits.view || traits.in_place) && in.needs_gradient) {
        out.gradient_root = in.gradient_root;
      }
      // A view has its input's memory, so the maker of that decides.
      bool may = !traits.keeps_output;
      if (traits.view) {
        may = overwritable[node.inputs[0]];
      }
      overwritable[node.output] = may && out.consumers == 1;
    }
  }

  const SparseSpec& sparse_;
  Graph graph_;
  std::map<std::string, int> by_name_;  // layer -> tensor
  std::map<int, std::string> paths_;    // tensor -> field of the JobSpec
  std::map<int, int> other_format_;     // tensor -> the same image in the other
  int last_ = 0;  // the newest layer's tensor, the default input of the next
};

}  // namespace

absl::StatusOr<Graph> BuildGraph(const Model& spec,
                                 const std::vector<int64_t>& sample_shape,
                                 const SparseSpec& sparse) {
  return GraphBuilder(sparse).Build(spec, sample_shape);
}

}  // namespace weir
