#include "common/job/layout.h"

#include <algorithm>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace weir {
namespace {

int64_t AlignUp(int64_t n) {
  return (n + Layout::kAlignElements - 1) / Layout::kAlignElements *
         Layout::kAlignElements;
}

// FNV-1a, 64 bits: a fingerprint, not a defence.
uint64_t HashBytes(uint64_t hash, const std::string& bytes) {
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3ull;
  }
  return hash;
}

absl::Status CheckVariable(const VariableSpec& variable) {
  if (variable.name.empty()) {
    return absl::InvalidArgumentError("a variable has no name");
  }
  if (variable.name.size() > Layout::kMaxNameBytes) {
    return Invalid("variable '", variable.name.substr(0, 64), "...' has a name",
                   " of ", variable.name.size(), " bytes, more than ",
                   Layout::kMaxNameBytes);
  }
  int64_t elements = 1;
  for (const int64_t dim : variable.shape) {
    if (dim < 1 || dim > Layout::kMaxFlatElements / elements) {
      return Invalid("variable '", variable.name, "' has shape [",
                     absl::StrJoin(variable.shape, ","),
                     "]: dimensions must be at least ",
                     "1 and the product at most 2^40");
    }
    elements *= dim;
  }
  if (!(variable.buffer_rate >= 0.0f && variable.buffer_rate <= 1.0f)) {
    return Invalid("variable '", variable.name, "' has buffer_rate ",
                   variable.buffer_rate, "; it must be in [0, 1]");
  }
  return absl::OkStatus();
}

absl::Status CheckVariables(const std::vector<VariableSpec>& variables) {
  if (variables.size() > Layout::kMaxVariables) {
    return Invalid(variables.size(), " variables are more than ",
                   Layout::kMaxVariables);
  }
  std::unordered_set<std::string> names;
  for (const VariableSpec& variable : variables) {
    WEIR_RETURN_IF_ERROR(CheckVariable(variable));
    if (!names.insert(variable.name).second) {
      return Invalid("variable '", variable.name, "' is declared twice");
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t VariableSpec::elements() const {
  int64_t elements = 1;
  for (const int64_t dim : shape) {
    elements *= dim;
  }
  return elements;
}

absl::StatusOr<Layout> Layout::Create(std::vector<VariableSpec> variables,
                                      int shard_count, int64_t block_elements) {
  if (shard_count < 1 || shard_count > kMaxShards) {
    return Invalid("shard count ", shard_count, " is not in [1, ", kMaxShards,
                   "]");
  }
  if (block_elements < kAlignElements || block_elements > kMaxBlockElements ||
      block_elements % kAlignElements != 0) {
    return Invalid("block_elements ", block_elements, " is not a multiple of ",
                   kAlignElements, " in [", kAlignElements, ", ",
                   kMaxBlockElements, "]");
  }
  WEIR_RETURN_IF_ERROR(CheckVariables(variables));

  Layout layout;
  layout.shard_count_ = shard_count;
  layout.block_elements_ = block_elements;
  layout.flat_begin_.resize(variables.size());
  // Trained variables first, then buffers. Each begins at a multiple of 16
  // elements, behind the padding of the one before it.
  for (const VariableKind kind :
       {VariableKind::kTrained, VariableKind::kBuffer}) {
    for (size_t v = 0; v < variables.size(); ++v) {
      if (variables[v].kind == kind) {
        layout.flat_order_.push_back(static_cast<int>(v));
        layout.flat_begin_[v] = layout.flat_elements_;
        layout.flat_elements_ += AlignUp(variables[v].elements());
        if (layout.flat_elements_ > kMaxFlatElements) {
          return absl::InvalidArgumentError(
              "the variables together exceed 2^40 elements");
        }
      }
    }
  }
  // I1: full rounds of blocks, then S ranges that lie end to end up to the end
  // of the flat space.
  // I2: the ranges are cut by lines of 16 elements, so they differ by one line.
  const int64_t round = block_elements * shard_count;
  layout.rounds_ = layout.flat_elements_ / round;
  if (layout.rounds_ >= kMaxBlocks) {
    return Invalid("block_elements ", block_elements, " makes ", layout.rounds_,
                   " blocks a shard, more than ", kMaxBlocks,
                   "; choose larger blocks");
  }
  const int64_t tail_begin = layout.rounds_ * round;
  const int64_t lines = (layout.flat_elements_ - tail_begin) / kAlignElements;
  for (int s = 0; s <= shard_count; ++s) {
    layout.tail_.push_back(tail_begin +
                           lines * s / shard_count * kAlignElements);
  }

  // The text has all that decides where an element lies and how it is updated.
  // Initialisers decide neither.
  std::string text =
      absl::StrCat("weir-layout-1 ", shard_count, " ", block_elements);
  for (const VariableSpec& variable : variables) {
    absl::StrAppend(&text, "\n", variable.name, " [",
                    absl::StrJoin(variable.shape, ","), "] ",
                    static_cast<int>(variable.kind), " ", variable.group);
  }
  layout.fingerprint_ = HashBytes(0xCBF29CE484222325ull, text);
  layout.variables_ = std::move(variables);
  return layout;
}

int Layout::block_count(int shard) const {
  // A shard whose range of the tail is empty has no block for it.
  const bool has_tail = tail_[shard + 1] > tail_[shard];
  return static_cast<int>(rounds_) + static_cast<int>(has_tail);
}

int64_t Layout::shard_elements(int shard) const {
  return rounds_ * block_elements_ + tail_[shard + 1] - tail_[shard];
}

FlatRange Layout::block(BlockId id) const {
  WEIR_CHECK(id.index >= 0 && id.index < block_count(id.shard));
  if (id.index < rounds_) {
    return {(int64_t{id.index} * shard_count_ + id.shard) * block_elements_,
            block_elements_};
  }
  return {tail_[id.shard], tail_[id.shard + 1] - tail_[id.shard]};
}

BlockId Layout::block_of(int64_t flat_element) const {
  if (flat_element < tail_[0]) {
    const int64_t block = flat_element / block_elements_;
    return {static_cast<int>(block % shard_count_),
            static_cast<int>(block / shard_count_)};
  }
  // upper_bound steps over empty ranges, which begin where the next one does.
  const auto it = std::upper_bound(tail_.begin(), tail_.end(), flat_element);
  return {static_cast<int>(it - tail_.begin()) - 1, static_cast<int>(rounds_)};
}

std::vector<Segment> Layout::segments(BlockId id) const {
  const FlatRange range = block(id);
  const int64_t end = range.begin + range.count;
  // The last variable that begins at or before the block.
  auto it = std::upper_bound(
      flat_order_.begin(), flat_order_.end(), range.begin,
      [this](int64_t element, int v) { return element < flat_begin_[v]; });
  if (it != flat_order_.begin()) {
    --it;
  }
  std::vector<Segment> segments;
  for (; it != flat_order_.end() && flat_begin_[*it] < end; ++it) {
    const int64_t begin = std::max(range.begin, flat_begin_[*it]);
    // I3: a segment stops where the variable's elements do. A block may end in
    // padding, or hold nothing else.
    const int64_t stop =
        std::min(end, flat_begin_[*it] + variables_[*it].elements());
    if (begin < stop) {
      segments.push_back(
          {*it, begin - range.begin, begin - flat_begin_[*it], stop - begin});
    }
  }
  return segments;
}

int Layout::Find(const std::string& name) const {
  for (size_t v = 0; v < variables_.size(); ++v) {
    if (variables_[v].name == name) {
      return static_cast<int>(v);
    }
  }
  return -1;
}

}  // namespace weir
