// C++ statuses as Python's exceptions.
#ifndef CLIENT_PYTHON_RAISE_H_
#define CLIENT_PYTHON_RAISE_H_

#include <pybind11/pybind11.h>

#include <string>

namespace weir::python {

inline pybind11::module_ Errors() {
  return pybind11::module_::import("weir.errors");
}

// REQUIRES: the GIL is held.
[[noreturn]] inline void Raise(const pybind11::object& type,
                               const std::string& message) {
  PyErr_SetString(type.ptr(), message.c_str());
  throw pybind11::error_already_set();
}

// The class in weir.errors for a status code.
[[noreturn]] inline void Raise(int code, const std::string& message) {
  Raise(Errors().attr("exception_for_code")(code), message);
}

}  // namespace weir::python

#endif  // CLIENT_PYTHON_RAISE_H_
