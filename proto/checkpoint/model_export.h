// A checkpoint as plain files that other programs read, and its fingerprint.
//
// Place: `weir checkpoint export`, and summary.json's model_sha256.
//
// Terms
//   table   its rows are two arrays, <table>.ids, I64 [rows], ascending, and
//           <table>.rows, F32 [rows, dim], without the optimizer's slots. Ids
//           are unsigned; from 2^63 on they are negative here.
//
// Threads: safe. Cost: holds one variable, or one table, at a time; exports
//   read tables twice.
// Errors: those of CheckpointReader; INVALID_ARGUMENT for a dtype that values
//   cannot be exported in, with the variable's name.
#ifndef PROTO_CHECKPOINT_MODEL_EXPORT_H_
#define PROTO_CHECKPOINT_MODEL_EXPORT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/files.h"

namespace weir {

// Writes the tensors by name, shape and export dtype (F32, BF16, F16, F64, I32,
// I64; integers rounded to nearest), every alias as a tensor of its own, with
// "format": "pt" in the metadata, which PyTorch's loaders ask for.
absl::Status ExportModel(Files* files, const std::string& checkpoint_dir,
                         const std::string& out_path);

// Writes <directory>/<name>.npy, one a variable (aliases left out) or array of
// a table, in the dtypes above; BF16, which NumPy has not, as float32. A '/' of
// a name becomes '.'. INVALID_ARGUMENT when two names become one.
absl::Status ExportNumpy(Files* files, const std::string& checkpoint_dir,
                         const std::string& directory);

// SHA-256, 64 hexadecimal digits, over the exported bytes of every variable in
// declared order, aliases left out; then for each table, as declared, the id
// and the values of every row, in the order of IndexHash.
absl::StatusOr<std::string> ExportedSha256(Files* files,
                                           const std::string& checkpoint_dir);

}  // namespace weir

#endif  // PROTO_CHECKPOINT_MODEL_EXPORT_H_
