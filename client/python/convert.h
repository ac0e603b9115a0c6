// Converts between Python's dictionaries and the SDK's structs.
//
// Place: core.cc, for what client/python/weir passes down. A key that is absent
// leaves the SDK's default.
//
// Threads: the caller holds the GIL.
// Errors: weir.InvalidArgument for an unknown name; pybind11's exceptions for
//   values of a wrong type.
#ifndef CLIENT_PYTHON_CONVERT_H_
#define CLIENT_PYTHON_CONVERT_H_

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "client/cc/weir.h"
#include "client/python/raise.h"

namespace weir::python {

using FloatArray = pybind11::array_t<float, pybind11::array::c_style>;

inline constexpr int kInvalidArgument = 3;  // of gRPC's codes

[[noreturn]] inline void Raise(const sdk::Status& status) {
  Raise(status.code(), status.message());
}

sdk::Options ToOptions(const pybind11::dict& from);
// The options that TF_CONFIG and WEIR_* give this process.
pybind11::dict OptionsFromEnv();
// From {"name", "shape", "values" (float32 array or absent), "group", "buffer",
// "export_dtype", "aliases"}.
sdk::Tensor ToTensor(const pybind11::dict& from);
// From what weir.Table._as_options returns.
sdk::Table ToTable(const pybind11::dict& from);
sdk::GroupSettings ToSettings(const pybind11::dict& from);

}  // namespace weir::python

#endif  // CLIENT_PYTHON_CONVERT_H_
