#include "client/python/convert.h"

#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weir::python {
namespace {

namespace py = pybind11;

using sdk::GroupSettings;
using sdk::Mode;
using sdk::Optimizer;
using sdk::RowOptimizer;
using sdk::Status;
using sdk::Table;
using sdk::Tensor;

// The value of `key`, or `otherwise`: the SDK's own default, so that defaults
// stand in one place.
template <typename T>
T Get(const py::dict& from, const char* key, T otherwise) {
  if (!from.contains(key)) {
    return otherwise;
  }
  return from[key].cast<T>();
}

Optimizer::Kind KindOf(const std::string& name) {
  constexpr std::pair<const char*, Optimizer::Kind> kKinds[] = {
      {"sgd", Optimizer::Kind::kSgd},
      {"adagrad", Optimizer::Kind::kAdagrad},
      {"rmsprop", Optimizer::Kind::kRmsProp},
      {"adadelta", Optimizer::Kind::kAdadelta},
      {"adam", Optimizer::Kind::kAdam},
      {"adamw", Optimizer::Kind::kAdamW},
  };
  for (const auto& [known, kind] : kKinds) {
    if (name == known) {
      return kind;
    }
  }
  Raise(Status(kInvalidArgument,
               "no optimizer is called '" + name +
                   "'; choose sgd, adagrad, rmsprop, adadelta, adam or adamw"));
}

Optimizer ToOptimizer(const py::dict& from) {
  Optimizer to;
  to.kind = KindOf(from["kind"].cast<std::string>());
  to.learning_rate = from["learning_rate"].cast<double>();
  to.weight_decay = Get(from, "weight_decay", to.weight_decay);
  to.momentum = Get(from, "momentum", to.momentum);
  to.dampening = Get(from, "dampening", to.dampening);
  to.nesterov = Get(from, "nesterov", to.nesterov);
  to.lr_decay = Get(from, "lr_decay", to.lr_decay);
  to.initial_accumulator =
      Get(from, "initial_accumulator", to.initial_accumulator);
  to.alpha = Get(from, "alpha", to.alpha);
  to.centered = Get(from, "centered", to.centered);
  to.rho = Get(from, "rho", to.rho);
  to.beta1 = Get(from, "beta1", to.beta1);
  to.beta2 = Get(from, "beta2", to.beta2);
  to.amsgrad = Get(from, "amsgrad", to.amsgrad);
  to.epsilon = Get(from, "epsilon", to.epsilon);
  return to;
}

Mode ModeOf(const std::string& name) {
  if (name == "async") {
    return Mode::kAsync;
  }
  if (name == "sync") {
    return Mode::kSync;
  }
  if (name == "ssp") {
    return Mode::kBoundedStaleness;
  }
  Raise(Status(kInvalidArgument,
               "no mode is called '" + name + "'; choose async, sync or ssp"));
}

RowOptimizer::Kind RowKindOf(const std::string& name) {
  constexpr std::pair<const char*, RowOptimizer::Kind> kKinds[] = {
      {"sgd", RowOptimizer::Kind::kSgd},
      {"adagrad", RowOptimizer::Kind::kAdagrad},
      {"rowwiseadagrad", RowOptimizer::Kind::kRowwiseAdagrad},
      {"sparseadam", RowOptimizer::Kind::kAdam},
      {"ftrl", RowOptimizer::Kind::kFtrl},
  };
  for (const auto& [known, kind] : kKinds) {
    if (name == known) {
      return kind;
    }
  }
  Raise(Status(kInvalidArgument, "tables have no optimizer '" + name + "'"));
}

Table::Init InitOf(const std::string& name) {
  if (name == "normal") {
    return Table::Init::kNormal;
  }
  if (name == "constant") {
    return Table::Init::kConstant;
  }
  return Table::Init::kUniform;  // weir.Table knows no fourth
}

RowOptimizer ToRowOptimizer(const py::dict& from) {
  RowOptimizer to;
  to.kind = RowKindOf(from["kind"].cast<std::string>());
  to.learning_rate = from["learning_rate"].cast<double>();
  to.initial_accumulator =
      Get(from, "initial_accumulator", to.initial_accumulator);
  to.epsilon = Get(from, "epsilon", to.epsilon);
  to.beta1 = Get(from, "beta1", to.beta1);
  to.beta2 = Get(from, "beta2", to.beta2);
  to.per_row_step = Get(from, "per_row_step", to.per_row_step);
  to.learning_rate_power =
      Get(from, "learning_rate_power", to.learning_rate_power);
  to.l1 = Get(from, "l1", to.l1);
  to.l2 = Get(from, "l2", to.l2);
  to.l2_shrinkage = Get(from, "l2_shrinkage", to.l2_shrinkage);
  to.beta = Get(from, "beta", to.beta);
  to.l21 = Get(from, "l21", to.l21);
  return to;
}

}  // namespace

sdk::Options ToOptions(const py::dict& from) {
  sdk::Options to;
  to.ps = from["ps"].cast<std::vector<std::string>>();
  to.chief = Get(from, "chief", to.chief);
  to.rank = Get(from, "rank", to.rank);
  to.worker_count = Get(from, "worker_count", to.worker_count);
  to.job = Get(from, "job", to.job);
  to.mode = ModeOf(Get<std::string>(from, "mode", "async"));
  to.staleness_bound = Get(from, "staleness", to.staleness_bound);
  if (from.contains("groups")) {
    to.groups.clear();
    for (const py::handle& group : from["groups"]) {
      to.groups.push_back(ToOptimizer(group.cast<py::dict>()));
    }
  }
  to.seed = Get(from, "seed", to.seed);
  to.block_elements = Get(from, "block_elements", to.block_elements);
  to.lost_after_seconds = Get(from, "lost_after", to.lost_after_seconds);
  to.start_wait_seconds = Get(from, "start_wait", to.start_wait_seconds);
  to.transport = Get(from, "transport", to.transport);
  to.checksum = Get(from, "checksum", to.checksum);
  to.push_encoding = Get(from, "push_encoding", to.push_encoding);
  to.pull_encoding = Get(from, "pull_encoding", to.pull_encoding);
  to.top_k_fraction = Get(from, "top_k_fraction", to.top_k_fraction);
  return to;
}

py::dict OptionsFromEnv() {
  sdk::Options options;
  if (const Status status = options.FromEnv(); !status.ok()) {
    Raise(status);
  }
  py::dict result;
  result["ps"] = options.ps;
  result["chief"] = options.chief;
  result["rank"] = options.rank;
  result["worker_count"] = options.worker_count;
  result["transport"] = options.transport;
  return result;
}

Tensor ToTensor(const py::dict& from) {
  Tensor to;
  to.name = from["name"].cast<std::string>();
  to.shape = from["shape"].cast<std::vector<int64_t>>();
  if (from.contains("values")) {
    const auto values = from["values"].cast<FloatArray>();
    to.values.assign(values.data(), values.data() + values.size());
  }
  to.group = Get(from, "group", to.group);
  to.buffer = Get(from, "buffer", to.buffer);
  to.export_dtype = Get(from, "export_dtype", to.export_dtype);
  to.aliases = Get(from, "aliases", to.aliases);
  return to;
}

Table ToTable(const py::dict& from) {
  Table to;
  to.name = from["name"].cast<std::string>();
  to.dim = from["dim"].cast<int>();
  to.optimizer = ToRowOptimizer(from["optimizer"].cast<py::dict>());
  to.init = InitOf(from["init"].cast<std::string>());
  to.init_scale = from["init_scale"].cast<float>();
  to.admission_count = Get(from, "admission_count", to.admission_count);
  to.admission_probability =
      Get(from, "admission_probability", to.admission_probability);
  to.admission_filter_bytes =
      Get(from, "admission_filter_bytes", to.admission_filter_bytes);
  to.expiry_steps = Get(from, "expiry_steps", to.expiry_steps);
  to.expiry_seconds = Get(from, "expiry_seconds", to.expiry_seconds);
  to.memory_bytes = Get(from, "memory_bytes", to.memory_bytes);
  to.least_frequent = Get(from, "least_frequent", to.least_frequent);
  to.lookup_encoding = Get(from, "lookup_encoding", to.lookup_encoding);
  to.update_encoding = Get(from, "update_encoding", to.update_encoding);
  return to;
}

GroupSettings ToSettings(const py::dict& from) {
  using Value = std::optional<double>;
  GroupSettings to;
  to.group = from["group"].cast<int>();
  to.learning_rate = Get(from, "learning_rate", Value());
  to.weight_decay = Get(from, "weight_decay", Value());
  to.momentum = Get(from, "momentum", Value());
  return to;
}

}  // namespace weir::python
