// Opens a file of data: a path, or an object of an object store, of which a
// copy may be kept on the disk.
//
// Place: input_stream.h. Every start of a worker and of an evaluator reads the
//   data once, and a host has several of them.
//
// Where WEIR_DATA_CACHE names a directory, an object is copied there when it is
// first opened, and read from there by all processes of the host from then on.
// Its name says the object's URL and version, so an object that was replaced is
// copied anew. Nothing is ever deleted, also not the ".tmp." file of a process
// that ended while it copied; the directory may be emptied at any time. Without
// the variable, and where there is no room, the object is read by ranges.
//
// Threads: safe.
// Errors: those of ObjectStore.
#ifndef WORKER_DATA_INPUT_DATA_CACHE_H_
#define WORKER_DATA_INPUT_DATA_CACHE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/io/files.h"
#include "common/io/object_store.h"

namespace weir {

absl::StatusOr<std::unique_ptr<FileReader>> OpenData(const std::string& path);

// The same with all that it depends on. `directory` is the cache's, or "".
absl::StatusOr<std::unique_ptr<FileReader>> OpenData(
    ObjectStore* store, Files* files, const std::string& directory,
    const std::string& path);

}  // namespace weir

#endif  // WORKER_DATA_INPUT_DATA_CACHE_H_
