// weir._core: the C++ SDK as a Python module.
//
// Place: below client/python/weir, which gives it Python's manners. Arrays are
// views of the SDK's buffers, so payloads are never copied here.
//
// Invariants
//   I1. The GIL is released around every call that may wait; a signal ends the
//       wait within a second (PyErr_CheckSignals).
//   I2. A view stays readable after close.
//   I3. In a forked child nothing touches the client: every call raises, and
//       its destruction leaves the parent's connections alone.
// Threads: one at a time per client, as the SDK; another one gets an error.
// Errors: the exceptions of weir.errors, by status code.
#include <grpc/support/log.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/cc/weir.h"
#include "client/python/checkpoints.h"
#include "client/python/raise.h"
#include "common/base/logging.h"

namespace weir::python {
namespace {

namespace py = pybind11;

using sdk::Client;
using sdk::GroupSettings;
using sdk::Mode;
using sdk::Optimizer;
using sdk::RowGradients;
using sdk::RowOptimizer;
using sdk::RowsWanted;
using sdk::Status;
using sdk::Table;
using sdk::Tensor;

[[noreturn]] void Raise(const Status& status) {
  python::Raise(status.code(), status.message());
}

constexpr int kInvalidArgument = 3;

template <typename T>
T Get(const py::dict& from, const char* key, T otherwise) {
  return from.contains(key) ? from[key].cast<T>() : otherwise;
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

// What TF_CONFIG and WEIR_* say of this process.
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

using FloatArray = py::array_t<float, py::array::c_style>;

// {"name", "shape", "values" (float32 array or absent), "group", "buffer",
// "export_dtype", "aliases"}
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
  return name == "normal"     ? Table::Init::kNormal
         : name == "constant" ? Table::Init::kConstant
                              : Table::Init::kUniform;
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

// What weir.Table._as_options says.
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

// Of one dimension. The caller of Python's side has checked both.
using IdArray = py::array_t<uint64_t, py::array::c_style>;

std::span<const uint64_t> SpanOf(const IdArray& ids) {
  return {ids.data(), static_cast<size_t>(ids.size())};
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

class CoreClient {
 public:
  explicit CoreClient(const py::dict& options)
      : options_(ToOptions(options)), process_(getpid()) {
    options_.keep_waiting = [this] { return KeepWaiting(); };
    WithoutGil([this]() -> Status {
      sdk::Result<Client> client = Client::Connect(options_);
      if (client.ok()) {
        client_ = std::make_unique<Client>(std::move(*client));
      }
      return client.status();
    });
  }
  ~CoreClient() {
    if (getpid() != process_) {
      (void)client_.release();  // I3
      return;
    }
    const py::gil_scoped_release release;
    client_.reset();
  }
  CoreClient(const CoreClient&) = delete;
  CoreClient& operator=(const CoreClient&) = delete;

  void Declare(const std::vector<py::dict>& tensors,
               const std::vector<py::dict>& tables) {
    std::vector<Tensor> converted;
    std::vector<Table> of_rows;
    for (const py::dict& table : tables) {
      of_rows.push_back(ToTable(table));
    }
    for (const py::dict& tensor : tensors) {
      converted.push_back(ToTensor(tensor));
      shapes_.push_back(converted.back().shape);
      names_.push_back(converted.back().name);
    }
    Run([&](Client* client) { return client->Declare(converted, of_rows); });
  }

  // Views, float32, of tensor number `tensor`; values are not to be written.
  py::array Values(size_t tensor) {
    const float* const data = Open()->Values(names_.at(tensor)).data();
    return View(tensor, const_cast<float*>(data));
  }
  py::array Gradient(size_t tensor) {
    return View(tensor, Open()->Gradient(names_.at(tensor)).data());
  }

  void Pull() {
    Run([](Client* client) { return client->Pull(); });
  }
  using Wanted = std::tuple<std::string, IdArray, FloatArray>;

  // Of tables: ids and where their rows go, float32 [ids, dim].
  void Lookup(std::vector<Wanted> wanted, bool train) {
    const std::vector<RowsWanted> lists = ToLists(&wanted);
    Run([&](Client* client) { return client->Lookup(lists, train); });
  }
  // Its two halves.
  void StartLookup(std::vector<Wanted> wanted, bool train) {
    const std::vector<RowsWanted> lists = ToLists(&wanted);
    Run([&](Client* client) { return client->StartLookup(lists, train); });
    wanted_.swap(wanted);
  }
  void WaitLookup() {
    Run([](Client* client) { return client->WaitLookup(); });
  }

  using Rows = std::tuple<std::string, IdArray, FloatArray>;

  void BeginPush(float weight, const std::vector<py::dict>& settings, bool pull,
                 const std::vector<Rows>& rows,
                 const std::vector<std::pair<std::string, double>>& rates) {
    sdk::PushOptions push;
    push.weight = weight;
    push.pull = pull;
    push.rows = ToGradients(rows);
    for (const auto& [table, rate] : rates) {
      push.tables.push_back({table, rate});
    }
    for (const py::dict& group : settings) {
      push.settings.push_back(ToSettings(group));
    }
    Run([&](Client* client) { return client->BeginPush(push); });
  }
  // Never wait, so they keep the GIL.
  void Ready(int tensor) { Check(Open()->Ready(tensor)); }
  // Gradients of their tensors' shapes, which the caller keeps as they are
  // until Wait returns.
  void ReadyFrom(const std::vector<std::pair<int, py::array>>& gradients) {
    Client* const client = Open();
    std::vector<std::pair<int, const float*>> places;
    for (const auto& [tensor, gradient] : gradients) {
      const auto& shape = shapes_.at(static_cast<size_t>(tensor));
      if (!FloatArray::check_(gradient) ||
          !std::equal(shape.begin(), shape.end(), gradient.shape(),
                      gradient.shape() + gradient.ndim())) {
        Raise(Status(kInvalidArgument,
                     "not a gradient of tensor " + std::to_string(tensor)));
      }
      places.emplace_back(tensor, static_cast<const float*>(gradient.data()));
    }
    Check(client->Ready(places));
  }
  void PushRows(const std::vector<Rows>& rows) {
    const std::vector<RowGradients> lists = ToGradients(rows);
    Run([&](Client* client) { return client->PushRows(lists); });
  }
  void EndPush() { Check(Open()->EndPush()); }
  void Wait() {
    Run([](Client* client) { return client->Wait(); });
  }
  void Finish() {
    Run([](Client* client) { return client->Finish(); });
  }
  void ShutdownServers() {
    Run([](Client* client) { return client->ShutdownServers(); });
  }
  uint64_t pushes() { return Open()->pushes(); }

  std::vector<py::dict> Servers() {
    std::vector<sdk::ServerStatus> servers;
    Run([&](Client* client) -> Status {
      auto result = client->Servers();
      if (result.ok()) {
        servers = *result;
      }
      return result.status();
    });
    std::vector<py::dict> converted;
    for (const sdk::ServerStatus& from : servers) {
      py::dict to;
      to["address"] = from.address;
      to["ready"] = from.ready;
      to["job"] = from.job;
      to["version_min"] = from.version_min;
      to["version_max"] = from.version_max;
      to["blocks_accepted"] = from.blocks_accepted;
      to["blocks_duplicate"] = from.blocks_duplicate;
      to["blocks_left_out"] = from.blocks_left_out;
      to["staleness_max"] = from.staleness_max;
      to["bytes_resident"] = from.bytes_resident;
      py::dict tables;
      for (const sdk::TableStatus& table : from.tables) {
        py::dict one;
        one["rows"] = table.rows;
        one["bytes"] = table.bytes;
        tables[py::str(table.name)] = std::move(one);
      }
      to["tables"] = std::move(tables);
      converted.push_back(std::move(to));
    }
    return converted;
  }

  void Close() {
    if (client_ != nullptr) {
      Run([this](Client*) -> Status {
        client_.reset();
        return Status();
      });
    }
  }

 private:
  static std::vector<RowsWanted> ToLists(std::vector<Wanted>* wanted) {
    std::vector<RowsWanted> lists;
    for (auto& [table, ids, rows] : *wanted) {
      const auto floats = static_cast<size_t>(rows.size());
      lists.push_back({table, SpanOf(ids), {rows.mutable_data(), floats}});
    }
    return lists;
  }
  static std::vector<RowGradients> ToGradients(const std::vector<Rows>& rows) {
    std::vector<RowGradients> lists;
    for (const auto& [table, ids, gradients] : rows) {
      const auto floats = static_cast<size_t>(gradients.size());
      lists.push_back({table, SpanOf(ids), {gradients.data(), floats}});
    }
    return lists;
  }

  // The client, for a caller who holds the GIL.
  Client* Open() const {
    if (getpid() != process_) {
      python::Raise(
          Errors().attr("Forked"),
          "this Weir client belongs to the process that forked this one (a "
          "DataLoader worker?): use it there alone, or start the workers "
          "with multiprocessing_context='spawn'");
    }
    if (busy_) {
      python::Raise(Errors().attr("Closed"),
                    "another thread is using this client");
    }
    if (client_ == nullptr) {
      python::Raise(Errors().attr("Closed"),
                    "the client is closed: connect again");
    }
    return client_.get();
  }

  // Raises what `call` says of the client.
  template <typename Call>
  void Run(const Call& call) {
    Client* const client = Open();
    WithoutGil([&] { return call(client); });
  }

  template <typename Call>
  void WithoutGil(const Call& call) {
    busy_ = true;
    Status status;
    {
      const py::gil_scoped_release release;
      status = call();
    }
    busy_ = false;
    Check(status);
  }

  void Check(const Status& status) {
    if (std::exchange(signalled_, false)) {
      throw py::error_already_set();  // what the signal's handler raised
    }
    if (!status.ok()) {
      Raise(status);
    }
  }

  bool KeepWaiting() {
    if (!signalled_) {
      const py::gil_scoped_acquire acquire;
      signalled_ = PyErr_CheckSignals() != 0;  // leaves what was raised set
    }
    return !signalled_;
  }

  py::array View(size_t tensor, float* data) const {
    auto* const keeper = new std::shared_ptr<const void>(client_->Buffers());
    const py::capsule owner(keeper, [](void* held) {
      delete static_cast<std::shared_ptr<const void>*>(held);
    });
    return py::array_t<float>(shapes_.at(tensor), data, owner);
  }

  sdk::Options options_;
  const pid_t process_;
  std::unique_ptr<Client> client_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<std::string> names_;
  std::vector<Wanted> wanted_;  // of StartLookup: kept until the next
  bool busy_ = false;  // in a call without the GIL; read and set with it
  bool signalled_ = false;
};

// The first client names the process in its log.
void SetUpProcess(const std::string& task) {
  if (static bool done = false; std::exchange(done, true)) {
    return;
  }
  InitLogging(task);
  // gRPC's errors come back as statuses; its own log would say them twice.
  gpr_set_log_function([](gpr_log_func_args* line) {
    LOG_DEBUG("{}:{} {}", line->file, line->line, line->message);
  });
}

PYBIND11_MODULE(_core, module) {
  module.def("set_up_process", &SetUpProcess);
  module.def("options_from_env", &OptionsFromEnv);
  AddCheckpoints(&module);
  py::class_<CoreClient>(module, "CoreClient")
      .def(py::init<const py::dict&>())
      .def("declare", &CoreClient::Declare)
      .def("values", &CoreClient::Values)
      .def("gradient", &CoreClient::Gradient)
      .def("pull", &CoreClient::Pull)
      .def("lookup", &CoreClient::Lookup)
      .def("start_lookup", &CoreClient::StartLookup)
      .def("wait_lookup", &CoreClient::WaitLookup)
      .def("begin_push", &CoreClient::BeginPush)
      .def("push_rows", &CoreClient::PushRows)
      .def("ready", &CoreClient::Ready)
      .def("ready_from", &CoreClient::ReadyFrom)
      .def("end_push", &CoreClient::EndPush)
      .def("wait", &CoreClient::Wait)
      .def("finish", &CoreClient::Finish)
      .def("shutdown_servers", &CoreClient::ShutdownServers)
      .def("servers", &CoreClient::Servers)
      .def("close", &CoreClient::Close)
      .def_property_readonly("pushes", &CoreClient::pushes);
}

}  // namespace
}  // namespace weir::python
