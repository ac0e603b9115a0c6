#include "server/chief/start/initial_values.h"

#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "client/cc/job/shard_start.h"
#include "common/base/status.h"
#include "common/math/half.h"
#include "proto/wire/layout_io.h"

namespace weir {

absl::StatusOr<std::unique_ptr<InitialValues>> InitialValues::Open(
    ObjectStore* files, const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(auto reader, SafetensorsReader::Open(files, path));
  return std::unique_ptr<InitialValues>(new InitialValues(std::move(reader)));
}

absl::StatusOr<std::vector<const SafetensorsArray*>> InitialValues::Match(
    const Layout& layout) const {
  std::vector<const SafetensorsArray*> arrays;
  std::set<std::string> known;
  for (const VariableSpec& variable : layout.variables()) {
    const SafetensorsArray* array = reader_->Find(variable.name);
    // The name comes before the aliases. All of them are known, so that a file
    // may hold one tensor under several names.
    known.insert(variable.name);
    for (const std::string& alias : variable.aliases) {
      known.insert(alias);
      if (array == nullptr) {
        array = reader_->Find(alias);
      }
    }
    if (array == nullptr) {
      return Invalid(reader_->path(), " has no tensor '", variable.name, "'");
    }
    if (array->shape != variable.shape) {
      return Invalid(reader_->path(), ": tensor '", array->name,
                     "' has shape [", absl::StrJoin(array->shape, ","),
                     "], the model's is [", absl::StrJoin(variable.shape, ","),
                     "]");
    }
    if (array->dtype != "F32" && array->dtype != "F16" &&
        array->dtype != "BF16") {
      return Invalid(reader_->path(), ": tensor '", array->name, "' has dtype ",
                     array->dtype, "; F32, F16 and BF16 can be read");
    }
    arrays.push_back(array);
  }
  // A tensor that nobody reads is a model that differs, or a name that is
  // misspelt: without this the variable would keep its initialiser unnoticed.
  for (const SafetensorsArray& array : reader_->arrays()) {
    if (!known.contains(array.name)) {
      return Invalid(reader_->path(), ": the model has no variable '",
                     array.name, "'");
    }
  }
  return arrays;
}

absl::Status InitialValues::ReadRange(const SafetensorsArray& array,
                                      int64_t offset, int64_t count,
                                      float* out) const {
  if (array.dtype == "F32") {
    return reader_->Read(array, offset * 4, out, count * 4);
  }
  std::vector<char> bytes(static_cast<size_t>(count) * 2);
  WEIR_RETURN_IF_ERROR(
      reader_->Read(array, offset * 2, bytes.data(), count * 2));
  if (array.dtype == "F16") {
    F16ToFloats(bytes.data(), static_cast<size_t>(count), out);
  } else {
    Bf16ToFloats(bytes.data(), static_cast<size_t>(count), out);
  }
  return absl::OkStatus();
}

absl::Status InitialValues::Assign(const Declaration& declaration,
                                   const Sender& sender, int shard,
                                   ControlLink* link) const {
  WEIR_ASSIGN_OR_RETURN(const Layout layout,
                        LayoutFromDeclaration(declaration));
  WEIR_ASSIGN_OR_RETURN(const auto arrays, Match(layout));
  StartingShard starting;
  starting.index = shard;
  starting.link = link;
  return AssignShard(
      starting, layout, sender,
      [&](const Segment& segment,
          std::vector<float>* space) -> absl::StatusOr<std::span<const float>> {
        space->resize(static_cast<size_t>(segment.count));
        WEIR_RETURN_IF_ERROR(ReadRange(*arrays[segment.variable],
                                       segment.variable_offset, segment.count,
                                       space->data()));
        return *space;
      });
}

}  // namespace weir
