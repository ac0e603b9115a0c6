// A checkpoint as one plain safetensors file, and its fingerprint.
//
// Place: `weir checkpoint export`, and summary.json's model_sha256.
//
// Threads: safe. Cost: holds one variable at a time.
// Errors: those of CheckpointReader; INVALID_ARGUMENT for a dtype that values
//   cannot be exported in, with the variable's name.
#ifndef PROTO_MODEL_EXPORT_H_
#define PROTO_MODEL_EXPORT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files.h"

namespace weir {

// Writes the tensors by name, shape and export dtype (F32, BF16, F16, F64, I32,
// I64; integers rounded to nearest), every alias as a tensor of its own, with
// "format": "pt" in the metadata, which PyTorch's loaders ask for.
absl::Status ExportModel(Files* files, const std::string& checkpoint_dir,
                         const std::string& out_path);

// SHA-256, 64 hexadecimal digits, over the exported bytes of every variable in
// declared order, aliases left out; then for each table, as declared, the id
// and the values of every row, in the order of IndexHash.
absl::StatusOr<std::string> ExportedSha256(Files* files,
                                           const std::string& checkpoint_dir);

}  // namespace weir

#endif  // PROTO_MODEL_EXPORT_H_
