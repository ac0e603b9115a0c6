// Writes a checkpoint as plain files that other programs read, and computes a
// fingerprint of what it would write.
//
// Place: `weir checkpoint export`, and model_sha256 of summary.json.
//
// The rows of a table become two arrays: <table>.ids, I64 [rows], ascending,
// and <table>.rows, F32 [rows, dim], without the optimizer state. Ids are
// unsigned, but from 2^63 on they are negative in this array, and come first.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  values cannot be exported in a variable's dtype;
//                           the message names the variable.
//         and those of CheckpointReader.
// Cost: holds one variable, or one table, at a time. Exports read tables twice.
#ifndef PROTO_CHECKPOINT_MODEL_EXPORT_H_
#define PROTO_CHECKPOINT_MODEL_EXPORT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/files.h"

namespace weir {

// Writes one safetensors file. It has the tensors by name, shape and export
// dtype (F32, BF16, F16, F64, I32, I64; integers are rounded to nearest), every
// alias as a tensor of its own, and "format": "pt" in the metadata, which
// PyTorch's loaders ask for.
absl::Status ExportModel(ObjectStore* files, const std::string& checkpoint_dir,
                         const std::string& out_path);

// Writes one file <directory>/<name>.npy for each variable, without aliases,
// and for each array of a table, in the dtypes above. NumPy has no BF16, so
// that becomes float32. A '/' in a name becomes a '.'. INVALID_ARGUMENT if two
// names become one.
absl::Status ExportNumpy(ObjectStore* files, const std::string& checkpoint_dir,
                         const std::string& directory);

// The SHA-256 in 64 hexadecimal digits. It covers the exported bytes of every
// variable in declared order, without aliases, and then, for each table as
// declared, the id and the values of every row, in the order of IndexHash.
absl::StatusOr<std::string> ExportedSha256(ObjectStore* files,
                                           const std::string& checkpoint_dir);

}  // namespace weir

#endif  // PROTO_CHECKPOINT_MODEL_EXPORT_H_
