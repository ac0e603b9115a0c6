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
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/cc/weir.h"
#include "client/python/checkpoints.h"
#include "client/python/convert.h"
#include "client/python/raise.h"
#include "common/base/logging.h"
#include "proto/task/grpc_log.h"

namespace weir::python {
namespace {

namespace py = pybind11;

using sdk::Client;
using sdk::RowGradients;
using sdk::RowsWanted;
using sdk::Status;
using sdk::Table;
using sdk::Tensor;

// Ids, of one dimension. Python's side has checked shape and type.
using IdArray = py::array_t<uint64_t, py::array::c_style>;

std::span<const uint64_t> SpanOf(const IdArray& ids) {
  return {ids.data(), static_cast<size_t>(ids.size())};
}

class CoreClient {
 public:
  explicit CoreClient(const py::dict& options)
      : options_(ToOptions(options)), process_(getpid()) {
    options_.keep_waiting = [this] { return KeepWaiting(); };  // I1
    WithoutGil([this]() -> Status {
      sdk::Result<Client> client = Client::Connect(options_);
      if (client.ok()) {
        client_ = std::make_unique<Client>(std::move(*client));
      }
      return client.status();
    });
  }
  ~CoreClient() {
    // I3: the client's threads exist in the parent only, and waiting for them
    // would hang. The memory goes with the child.
    if (getpid() != process_) {
      (void)client_.release();
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

  // float32 views of tensor number `tensor`. Python must not write the values;
  // _client.py makes its own view of them read-only.
  py::array Values(size_t tensor) {
    const float* const data = Open()->Values(names_.at(tensor)).data();
    return View(tensor, const_cast<float*>(data));
  }
  py::array Gradient(size_t tensor) {
    return View(tensor, Open()->Gradient(names_.at(tensor)).data());
  }

  // A call of the SDK that takes nothing and returns a status.
  template <Status (Client::*call)()>
  void Call() {
    Run([](Client* client) { return (client->*call)(); });
  }

  using Wanted = std::tuple<std::string, IdArray, FloatArray>;

  // Looks up rows of tables. Each entry has ids, and the float32 array [ids,
  // dim] that their rows are written to.
  void Lookup(std::vector<Wanted> wanted, bool train) {
    const std::vector<RowsWanted> lists = ToLists(&wanted);
    Run([&](Client* client) { return client->Lookup(lists, train); });
  }
  // Lookup in two halves. The arrays are kept from one to the other.
  void StartLookup(std::vector<Wanted> wanted, bool train) {
    const std::vector<RowsWanted> lists = ToLists(&wanted);
    Run([&](Client* client) { return client->StartLookup(lists, train); });
    wanted_.swap(wanted);
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
  // Ready, ReadyFrom, EndPush and HasValues never wait, so they keep the GIL
  // (I1).
  void Ready(int tensor) { Check(Open()->Ready(tensor)); }
  // Gradients in their tensors' shapes. The caller must neither free nor change
  // them until Wait returns: they are not copied.
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
  bool HasValues(int tensor) { return Open()->HasValues(tensor); }
  uint64_t pushes() { return Open()->pushes(); }
  // It only adds up, so it keeps the GIL.
  void Report(const std::vector<std::pair<std::string, double>>& values,
              uint64_t examples) {
    Check(Open()->Report({values, examples}));
  }

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

  // The client, for a caller who holds the GIL. Raises if it must not be used:
  // in a forked child (I3), while another thread is in it, or after close.
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

  // Runs `call` on the client without the GIL, and raises its error.
  template <typename Call>
  void Run(const Call& call) {
    Client* const client = Open();
    WithoutGil([&] { return call(client); });
  }

  template <typename Call>
  void WithoutGil(const Call& call) {
    // I1. Set under the GIL, so another thread sees it before it could come in.
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
    // The handler's exception goes before the status, which only says
    // CANCELLED.
    if (std::exchange(signalled_, false)) {
      throw py::error_already_set();  // what the signal's handler raised
    }
    if (!status.ok()) {
      Raise(status);
    }
  }

  bool KeepWaiting() {
    if (!signalled_) {
      // I1: the SDK asks ten times a second, on the thread that called it.
      const py::gil_scoped_acquire acquire;
      signalled_ = PyErr_CheckSignals() != 0;  // leaves what was raised set
    }
    return !signalled_;
  }

  py::array View(size_t tensor, float* data) const {
    // I2: the array owns a reference to the buffers, not to the client.
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
  static bool done = false;
  if (done) {
    return;
  }
  const absl::Status logging = InitLogging(task, LogOptions::FromEnvironment());
  if (!logging.ok()) {
    Raise(logging.raw_code(), std::string(logging.message()));
  }
  done = true;
  LogGrpcAsDebug();
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
      .def("pull", &CoreClient::Call<&Client::Pull>)
      .def("lookup", &CoreClient::Lookup)
      .def("start_lookup", &CoreClient::StartLookup)
      .def("wait_lookup", &CoreClient::Call<&Client::WaitLookup>)
      .def("begin_push", &CoreClient::BeginPush)
      .def("push_rows", &CoreClient::PushRows)
      .def("ready", &CoreClient::Ready)
      .def("ready_from", &CoreClient::ReadyFrom)
      .def("end_push", &CoreClient::EndPush)
      .def("has_values", &CoreClient::HasValues)
      .def("wait", &CoreClient::Call<&Client::Wait>)
      .def("report", &CoreClient::Report)
      .def("finish", &CoreClient::Call<&Client::Finish>)
      .def("servers", &CoreClient::Servers)
      .def("close", &CoreClient::Close)
      .def_property_readonly("pushes", &CoreClient::pushes);
}

}  // namespace
}  // namespace weir::python
