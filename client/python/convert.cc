#include "client/python/convert.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <string>

#include "client/cc/sdk/fields.h"

namespace weir::python {
namespace {

namespace py = pybind11;

using sdk::GroupSettings;
using sdk::Optimizer;
using sdk::RowOptimizer;
using sdk::Status;
using sdk::Table;
using sdk::Tensor;

// Sets *to to the value of `key`. Without one it stays the SDK's own default,
// so that defaults stand in one place.
template <typename T>
void Take(const py::dict& from, const char* key, T* to) {
  if (from.contains(key)) {
    *to = from[key].cast<T>();
  }
}

// The value of the enum `Kind` whose place in `names` has the name at `key`.
template <typename Kind, size_t count>
Kind TakeKind(const py::dict& from, const char* key,
              const char* const (&names)[count]) {
  const auto name = from[key].cast<std::string>();
  const auto* const found = std::find(names, names + count, name);
  if (found == names + count) {
    std::string known;
    for (const char* const one : names) {
      known += known.empty() ? one : std::string(", ") + one;
    }
    Raise(Status(kInvalidArgument, std::string("no ") + key + " is called '" +
                                       name + "'; choose one of " + known));
  }
  return static_cast<Kind>(found - names);
}

// One of the structs of client/cc/sdk/fields.h.
template <typename Fields>
Fields ToFields(const py::dict& from) {
  Fields to;
  ForEachField(
      &to, [&from](const char* name, auto* value) { Take(from, name, value); });
  return to;
}

Optimizer ToOptimizer(const py::dict& from) {
  Optimizer to = ToFields<Optimizer>(from);
  to.kind = TakeKind<Optimizer::Kind>(from, "optimizer", sdk::kOptimizerNames);
  return to;
}

RowOptimizer ToRowOptimizer(const py::dict& from) {
  // By Python's classes: Adam is that of tensors.
  constexpr const char* kNames[] = {"sgd", "adagrad", "rowwiseadagrad",
                                    "sparseadam", "ftrl"};
  RowOptimizer to = ToFields<RowOptimizer>(from);
  to.kind = TakeKind<RowOptimizer::Kind>(from, "optimizer", kNames);
  return to;
}

}  // namespace

sdk::Options ToOptions(const py::dict& from) {
  constexpr const char* kModes[] = {"async", "sync", "ssp"};
  sdk::Options to;
  Take(from, "ps", &to.ps);
  Take(from, "chief", &to.chief);
  Take(from, "rank", &to.rank);
  Take(from, "worker_count", &to.worker_count);
  Take(from, "job", &to.job);
  if (from.contains("mode")) {
    to.mode = TakeKind<sdk::Mode>(from, "mode", kModes);
  }
  Take(from, "staleness", &to.staleness_bound);
  if (from.contains("groups")) {
    to.groups.clear();
    for (const py::handle& group : from["groups"]) {
      to.groups.push_back(ToOptimizer(group.cast<py::dict>()));
    }
  }
  Take(from, "seed", &to.seed);
  Take(from, "block_elements", &to.block_elements);
  Take(from, "lost_after", &to.lost_after_seconds);
  Take(from, "start_wait", &to.start_wait_seconds);
  Take(from, "transport", &to.transport);
  Take(from, "checksum", &to.checksum);
  Take(from, "push_encoding", &to.push_encoding);
  Take(from, "pull_encoding", &to.pull_encoding);
  Take(from, "top_k_fraction", &to.top_k_fraction);
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
  Take(from, "name", &to.name);
  Take(from, "shape", &to.shape);
  if (from.contains("values")) {
    const auto values = from["values"].cast<FloatArray>();
    to.values.assign(values.data(), values.data() + values.size());
  }
  Take(from, "group", &to.group);
  Take(from, "buffer", &to.buffer);
  Take(from, "export_dtype", &to.export_dtype);
  Take(from, "aliases", &to.aliases);
  return to;
}

Table ToTable(const py::dict& from) {
  constexpr const char* kInits[] = {"uniform", "normal", "constant"};
  Table to;
  Take(from, "name", &to.name);
  Take(from, "dim", &to.dim);
  to.optimizer = ToRowOptimizer(from["optimizer"].cast<py::dict>());
  to.init = TakeKind<Table::Init>(from, "init", kInits);
  Take(from, "init_scale", &to.init_scale);
  Take(from, "admission_count", &to.admission_count);
  Take(from, "admission_probability", &to.admission_probability);
  Take(from, "admission_filter_bytes", &to.admission_filter_bytes);
  Take(from, "expiry_steps", &to.expiry_steps);
  Take(from, "expiry_seconds", &to.expiry_seconds);
  Take(from, "memory_bytes", &to.memory_bytes);
  Take(from, "least_frequent", &to.least_frequent);
  Take(from, "lookup_encoding", &to.lookup_encoding);
  Take(from, "update_encoding", &to.update_encoding);
  return to;
}

GroupSettings ToSettings(const py::dict& from) {
  GroupSettings to = ToFields<GroupSettings>(from);
  Take(from, "group", &to.group);
  return to;
}

}  // namespace weir::python
