#include "server/chief/start/initial_values.h"

#include <deque>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/math/half.h"
#include "proto/wire/layout_io.h"

namespace weir {
namespace {

constexpr ControlLink::Timeout kAssignTimeout{600'000};
// 64 MiB of floats: the memory that a call needs here, and what a retry sends
// again at most.
constexpr int64_t kCallElements = int64_t{16} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<InitialValues>> InitialValues::Open(
    Files* files, const std::string& path) {
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
      return absl::InvalidArgumentError(absl::StrCat(
          reader_->path(), " has no tensor '", variable.name, "'"));
    }
    if (array->shape != variable.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          reader_->path(), ": tensor '", array->name, "' has shape [",
          absl::StrJoin(array->shape, ","), "], the model's is [",
          absl::StrJoin(variable.shape, ","), "]"));
    }
    if (array->dtype != "F32" && array->dtype != "F16" &&
        array->dtype != "BF16") {
      return absl::InvalidArgumentError(absl::StrCat(
          reader_->path(), ": tensor '", array->name, "' has dtype ",
          array->dtype, "; F32, F16 and BF16 can be read"));
    }
    arrays.push_back(array);
  }
  // A tensor that nobody reads is a model that differs, or a name that is
  // misspelt: without this the variable would keep its initialiser unnoticed.
  for (const SafetensorsArray& array : reader_->arrays()) {
    if (!known.contains(array.name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          reader_->path(), ": the model has no variable '", array.name, "'"));
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
  for (int block = 0; block < layout.block_count(shard);) {
    // The call borrows the values until it returns, so one call has a bounded
    // part of the shard. A deque: the chunks must not move while it grows.
    std::deque<std::pair<AssignChunk, std::vector<float>>> chunks;
    int64_t elements = 0;
    for (; block < layout.block_count(shard) && elements < kCallElements;
         ++block) {
      for (const Segment& segment : layout.segments({shard, block})) {
        auto& [chunk, values] = chunks.emplace_back();
        *chunk.mutable_sender() = sender;
        chunk.set_block(static_cast<uint32_t>(block));
        chunk.set_offset(static_cast<uint32_t>(segment.block_offset));
        values.resize(static_cast<size_t>(segment.count));
        WEIR_RETURN_IF_ERROR(ReadRange(*arrays[segment.variable],
                                       segment.variable_offset, segment.count,
                                       values.data()));
        elements += segment.count;
      }
    }
    // An Assign that is repeated writes the same values, so it may be.
    WEIR_RETURN_IF_ERROR(SendUntilWhole([&] {
      auto next = chunks.begin();
      return link
          ->Assign(kAssignTimeout,
                   [&](AssignChunk* chunk, std::span<const char>* payload) {
                     if (next == chunks.end()) {
                       return false;
                     }
                     *chunk = next->first;
                     *payload = {
                         reinterpret_cast<const char*>(next->second.data()),
                         next->second.size() * sizeof(float)};
                     ++next;
                     return true;
                   })
          .status();
    }));
  }
  return absl::OkStatus();
}

}  // namespace weir
