// The part of weir._core that reads checkpoints; no server is needed.
//
// Threads: safe; files are read without the GIL.
// Errors: those of proto/checkpoint/checkpoint_files.h, as exceptions of
// weir.errors.
#ifndef CLIENT_PYTHON_CHECKPOINTS_H_
#define CLIENT_PYTHON_CHECKPOINTS_H_

#include <pybind11/pybind11.h>

namespace weir::python {

// list_checkpoints(directory) -> [(step, path)], by step
// read_checkpoint(path) -> {name: float32 array}, further names included
void AddCheckpoints(pybind11::module_* module);

}  // namespace weir::python

#endif  // CLIENT_PYTHON_CHECKPOINTS_H_
