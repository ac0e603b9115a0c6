#include "proto/model_export.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/half.h"
#include "common/safetensors.h"
#include "common/sha256.h"
#include "common/status.h"
#include "proto/checkpoint_io.h"
#include "proto/table_rows.h"

namespace weir {
namespace {

template <typename T>
std::string Convert(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = std::is_integral_v<T>
                        ? static_cast<T>(std::llround(values[i]))
                        : static_cast<T>(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

// The bytes of `variable` in its export dtype.
absl::StatusOr<std::string> ExportedBytes(CheckpointReader* reader,
                                          const VariableSpec& variable) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<float> values,
                        reader->ReadVariable(variable.name));
  const std::string& dtype = variable.export_dtype;
  std::string bytes;
  if (dtype == "F32") {
    bytes = Convert<float>(values);
  } else if (dtype == "BF16") {
    bytes.resize(values.size() * 2);
    FloatsToBf16(values.data(), values.size(), bytes.data());
  } else if (dtype == "F16") {
    bytes.resize(values.size() * 2);
    FloatsToF16(values.data(), values.size(), bytes.data());
  } else if (dtype == "F64") {
    bytes = Convert<double>(values);
  } else if (dtype == "I32") {
    bytes = Convert<int32_t>(values);
  } else if (dtype == "I64") {
    bytes = Convert<int64_t>(values);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("variable '", variable.name, "' has export dtype ", dtype,
                     "; known: F32, BF16, F16, F64, I32, I64"));
  }
  return bytes;
}

}  // namespace

absl::Status ExportModel(Files* files, const std::string& checkpoint_dir,
                         const std::string& out_path) {
  WEIR_ASSIGN_OR_RETURN(const auto reader,
                        CheckpointReader::Open(files, checkpoint_dir));
  std::vector<SafetensorsArray> arrays;
  std::vector<const VariableSpec*> sources;
  for (const VariableSpec& variable : reader->layout().variables()) {
    std::vector<std::string> names = variable.aliases;
    names.insert(names.begin(), variable.name);
    for (std::string& name : names) {
      SafetensorsArray array;
      array.name = std::move(name);
      array.dtype = variable.export_dtype;
      array.shape = variable.shape;
      arrays.push_back(std::move(array));
      sources.push_back(&variable);
    }
  }
  WEIR_ASSIGN_OR_RETURN(
      const auto writer,
      SafetensorsWriter::Create(
          files, out_path, std::move(arrays),
          {{"format", "pt"},
           {"weir.step", absl::StrCat(reader->manifest().step())}}));
  for (const VariableSpec* variable : sources) {
    WEIR_ASSIGN_OR_RETURN(const std::string bytes,
                          ExportedBytes(reader.get(), *variable));
    WEIR_RETURN_IF_ERROR(writer->Append(bytes.data(), bytes.size()));
  }
  return writer->Finish().status();
}

absl::StatusOr<std::string> ExportedSha256(Files* files,
                                           const std::string& checkpoint_dir) {
  WEIR_ASSIGN_OR_RETURN(const auto reader,
                        CheckpointReader::Open(files, checkpoint_dir));
  Sha256 sha;
  for (const VariableSpec& variable : reader->layout().variables()) {
    WEIR_ASSIGN_OR_RETURN(const std::string bytes,
                          ExportedBytes(reader.get(), variable));
    sha.Update(bytes.data(), bytes.size());
  }
  const Manifest& manifest = reader->manifest();
  WEIR_ASSIGN_OR_RETURN(const auto tables,
                        TableMerge::Open(files, checkpoint_dir, manifest));
  for (int t = 0; t < manifest.declaration().table_size(); ++t) {
    const size_t bytes = manifest.declaration().table(t).dim() * sizeof(float);
    WEIR_RETURN_IF_ERROR(
        tables->Visit(t, [&](uint64_t id, const float* values) {
          sha.Update(&id, sizeof(id));
          sha.Update(values, bytes);
        }));
  }
  return sha.FinishHex();
}

}  // namespace weir
