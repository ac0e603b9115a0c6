#include "proto/checkpoint/model_export.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status.h"
#include "common/io/npy.h"
#include "common/io/safetensors.h"
#include "common/io/sha256.h"
#include "common/math/half.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/checkpoint/table_merge.h"

namespace weir {
namespace {

template <typename T>
std::string Convert(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    T value = static_cast<T>(0);
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(std::llround(values[i]));
    } else {
      value = static_cast<T>(values[i]);
    }
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

// The result of llround is not defined for NaN and for what is out of range.
template <typename T>
absl::Status CheckWhole(const VariableSpec& variable,
                        const std::vector<float>& values) {
  const float limit = -static_cast<float>(std::numeric_limits<T>::min());
  for (const float value : values) {
    if (!(value >= -limit && value < limit)) {  // negated for NaN
      return Invalid("variable '", variable.name, "' has the value ", value,
                     ", which ", variable.export_dtype, " cannot hold");
    }
  }
  return absl::OkStatus();
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
    WEIR_RETURN_IF_ERROR(CheckWhole<int32_t>(variable, values));
    bytes = Convert<int32_t>(values);
  } else if (dtype == "I64") {
    WEIR_RETURN_IF_ERROR(CheckWhole<int64_t>(variable, values));
    bytes = Convert<int64_t>(values);
  } else {
    return Invalid("variable '", variable.name, "' has export dtype ", dtype,
                   "; known: F32, BF16, F16, F64, I32, I64");
  }
  return bytes;
}

using AppendBytes = std::function<absl::Status(const void*, size_t)>;

// The rows of one table in memory. Exports have them in the order of the ids,
// which a reader can search, and not in the order of a hash of ours.
class LoadedTable {
 public:
  static absl::StatusOr<LoadedTable> Load(const TableMerge& tables, int table,
                                          int64_t dim) {
    LoadedTable loaded;
    loaded.dim_ = static_cast<size_t>(dim);
    WEIR_RETURN_IF_ERROR(
        tables.Visit(table, [&](uint64_t id, const float* values) {
          loaded.ids_.push_back(static_cast<int64_t>(id));
          loaded.rows_.insert(loaded.rows_.end(), values, values + dim);
        }));
    loaded.order_.resize(loaded.ids_.size());
    std::iota(loaded.order_.begin(), loaded.order_.end(), size_t{0});
    std::sort(
        loaded.order_.begin(), loaded.order_.end(),
        [&](size_t a, size_t b) { return loaded.ids_[a] < loaded.ids_[b]; });
    return loaded;
  }

  absl::Status AppendIds(const AppendBytes& append) const {
    return AppendPieces<int64_t>(1, ids_.data(), append);
  }
  absl::Status AppendRows(const AppendBytes& append) const {
    return AppendPieces<float>(dim_, rows_.data(), append);
  }

 private:
  static constexpr size_t kPieceRows = 4096;

  // Appends `width` elements of each row, in the order of the ids.
  template <class T>
  absl::Status AppendPieces(size_t width, const T* from,
                            const AppendBytes& append) const {
    std::vector<T> piece;
    for (size_t i = 0; i < order_.size(); ++i) {
      const T* const row = from + order_[i] * width;
      piece.insert(piece.end(), row, row + width);
      if (piece.size() >= kPieceRows * width || i + 1 == order_.size()) {
        WEIR_RETURN_IF_ERROR(append(piece.data(), piece.size() * sizeof(T)));
        piece.clear();
      }
    }
    return absl::OkStatus();
  }

  size_t dim_ = 0;
  std::vector<int64_t> ids_;
  std::vector<float> rows_;
  // The rows' indexes in the order of their ids. Rows are wide, so only these
  // are sorted.
  std::vector<size_t> order_;
};

constexpr char kIds[] = ".ids";
constexpr char kRows[] = ".rows";

// A safetensors header and a .npy header come before the data and have the
// shape, so rows are counted first.
absl::StatusOr<int64_t> CountRows(const TableMerge& tables, int table) {
  int64_t rows = 0;
  WEIR_RETURN_IF_ERROR(
      tables.Visit(table, [&](uint64_t, const float*) { ++rows; }));
  return rows;
}

}  // namespace

absl::Status ExportModel(ObjectStore* files, const std::string& checkpoint_dir,
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
  const Manifest& manifest = reader->manifest();
  const auto& declared = manifest.declaration().table();
  WEIR_ASSIGN_OR_RETURN(const auto tables,
                        TableMerge::Open(files, checkpoint_dir, manifest));
  for (int t = 0; t < declared.size(); ++t) {
    WEIR_ASSIGN_OR_RETURN(const int64_t rows, CountRows(*tables, t));
    arrays.push_back({declared[t].name() + kIds, "I64", {rows}});
    arrays.push_back(
        {declared[t].name() + kRows, "F32", {rows, declared[t].dim()}});
  }
  WEIR_ASSIGN_OR_RETURN(
      const auto writer,
      SafetensorsWriter::Create(
          files, out_path, std::move(arrays),
          {{"format", "pt"}, {"weir.step", absl::StrCat(manifest.step())}}));
  // An alias is converted again, which costs a read but no memory.
  for (const VariableSpec* variable : sources) {
    WEIR_ASSIGN_OR_RETURN(const std::string bytes,
                          ExportedBytes(reader.get(), *variable));
    WEIR_RETURN_IF_ERROR(writer->Append(bytes.data(), bytes.size()));
  }
  const AppendBytes append = [&](const void* data, size_t bytes) {
    return writer->Append(data, static_cast<int64_t>(bytes));
  };
  for (int t = 0; t < declared.size(); ++t) {
    WEIR_ASSIGN_OR_RETURN(const LoadedTable table,
                          LoadedTable::Load(*tables, t, declared[t].dim()));
    WEIR_RETURN_IF_ERROR(table.AppendIds(append));
    WEIR_RETURN_IF_ERROR(table.AppendRows(append));
  }
  return writer->Finish().status();
}

absl::Status ExportNumpy(ObjectStore* files, const std::string& checkpoint_dir,
                         const std::string& directory) {
  static const auto* const descr_of = new std::map<std::string, std::string>{
      {"F32", "<f4"}, {"BF16", "<f4"}, {"F16", "<f2"},
      {"F64", "<f8"}, {"I32", "<i4"},  {"I64", "<i8"}};
  WEIR_ASSIGN_OR_RETURN(const auto reader,
                        CheckpointReader::Open(files, checkpoint_dir));
  const Manifest& manifest = reader->manifest();
  WEIR_ASSIGN_OR_RETURN(const auto tables,
                        TableMerge::Open(files, checkpoint_dir, manifest));
  WEIR_RETURN_IF_ERROR(files->MakeDirectories(directory));
  std::set<std::string> names;
  const auto write =
      [&](const std::string& name, const std::string& descr,
          const std::vector<int64_t>& shape,
          const std::function<absl::Status(const AppendBytes&)>& data) {
        const std::string file =
            absl::StrCat(absl::StrReplaceAll(name, {{"/", "."}}), ".npy");
        // "a/b" and "a.b" would overwrite one another.
        if (!names.insert(file).second) {
          return Invalid("'", name, "' and another array would both be ", file);
        }
        return WriteNpy(files, JoinPath(directory, file), descr, shape,
                        [&](ObjectWriter& writer) {
                          return data([&](const void* bytes, size_t count) {
                            return writer.Append(bytes, count);
                          });
                        });
      };
  for (VariableSpec variable : reader->layout().variables()) {
    // An unknown dtype has no entry, but then ExportedBytes fails before it is
    // used.
    const auto descr = descr_of->find(variable.export_dtype);
    if (variable.export_dtype == "BF16") {
      variable.export_dtype = "F32";
    }
    WEIR_ASSIGN_OR_RETURN(const std::string bytes,
                          ExportedBytes(reader.get(), variable));
    WEIR_RETURN_IF_ERROR(write(variable.name, descr->second, variable.shape,
                               [&](const AppendBytes& append) {
                                 return append(bytes.data(), bytes.size());
                               }));
  }
  const auto& declared = manifest.declaration().table();
  for (int t = 0; t < declared.size(); ++t) {
    WEIR_ASSIGN_OR_RETURN(const int64_t rows, CountRows(*tables, t));
    WEIR_ASSIGN_OR_RETURN(const LoadedTable table,
                          LoadedTable::Load(*tables, t, declared[t].dim()));
    WEIR_RETURN_IF_ERROR(write(
        declared[t].name() + kIds, "<i8", {rows},
        [&](const AppendBytes& append) { return table.AppendIds(append); }));
    WEIR_RETURN_IF_ERROR(write(
        declared[t].name() + kRows, "<f4", {rows, declared[t].dim()},
        [&](const AppendBytes& append) { return table.AppendRows(append); }));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ExportedSha256(ObjectStore* files,
                                           const std::string& checkpoint_dir) {
  WEIR_ASSIGN_OR_RETURN(const auto reader,
                        CheckpointReader::Open(files, checkpoint_dir));
  // Not over the bytes of an exported file, whose header has the aliases and
  // the step: equal models have one fingerprint.
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
