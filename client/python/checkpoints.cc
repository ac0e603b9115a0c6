#include "client/python/checkpoints.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/python/raise.h"
#include "common/objects/any_store.h"
#include "proto/checkpoint/checkpoint_files.h"

namespace weir::python {
namespace {

namespace py = pybind11;

// Runs `call` without the GIL, since files may be slow, and raises its error.
template <typename Call>
auto WithoutGil(const Call& call) {
  auto result = [&] {
    const py::gil_scoped_release release;
    return call();
  }();
  if (!result.ok()) {
    Raise(static_cast<int>(result.status().code()),
          std::string(result.status().message()));
  }
  return *std::move(result);
}

// The same for a checkpoint's files. What is not there is DATA_LOSS, as damage
// is: the chief takes old checkpoints away, and begins with the manifest.
template <typename Call>
auto ReadFiles(const Call& call) {
  return WithoutGil([&] {
    auto result = call();
    if (absl::IsNotFound(result.status())) {
      result = absl::DataLossError(result.status().message());
    }
    return result;
  });
}

std::vector<std::pair<uint64_t, std::string>> List(
    const std::string& directory) {
  const std::vector<CheckpointInfo> found =
      WithoutGil([&] { return ListCheckpoints(AnyStore(), directory); });
  std::vector<std::pair<uint64_t, std::string>> result;
  for (const CheckpointInfo& info : found) {
    if (!result.empty() && result.back().first == info.step) {
      // The list is in order, so this one was an earlier attempt at the step.
      result.pop_back();
    }
    result.emplace_back(info.step, info.path);
  }
  return result;
}

py::dict Read(const std::string& path) {
  const std::unique_ptr<CheckpointReader> reader =
      ReadFiles([&] { return CheckpointReader::Open(AnyStore(), path); });
  py::dict result;
  for (const VariableSpec& variable : reader->layout().variables()) {
    const std::vector<float> values =
        ReadFiles([&] { return reader->ReadVariable(variable.name); });
    const py::array_t<float> array(variable.shape, values.data());
    result[py::str(variable.name)] = array;
    // Names of one tensor share one array, as they shared one variable.
    for (const std::string& alias : variable.aliases) {
      result[py::str(alias)] = array;
    }
  }
  return result;
}

bool RunHasEnded(const std::string& run) {
  for (const char* name : {kDoneName, kEndedName}) {
    if (WithoutGil([&] { return AnyStore()->Exists(JoinPath(run, name)); })) {
      return true;
    }
  }
  return false;
}

}  // namespace

void AddCheckpoints(py::module_* module) {
  module->def("list_checkpoints", &List);
  module->def("read_checkpoint", &Read);
  module->def("run_has_ended", &RunHasEnded);
}

}  // namespace weir::python
