#include "common/job/unique_ids.h"

#include <algorithm>
#include <array>
#include <utility>

namespace weir {
namespace {

// Digits of the radix sort: the counts of one, 8 KiB, stay in L1.
constexpr int kDigitBits = 11;
constexpr int kDigits = (64 + kDigitBits - 1) / kDigitBits;
constexpr uint64_t kBuckets = uint64_t{1} << kDigitBits;

uint64_t Digit(uint64_t id, int digit) {
  return (id >> (digit * kDigitBits)) & (kBuckets - 1);
}

}  // namespace

void UniqueIds::Clear() {
  entries_.clear();
  ids_.clear();
  // ranks_ keeps its size: to fill it with zeros again would cost a pass.
}

void UniqueIds::Append(std::span<const uint64_t> ids) {
  for (const uint64_t id : ids) {
    entries_.push_back({id, static_cast<uint32_t>(entries_.size())});
  }
}

void UniqueIds::Sort() {
  if (std::is_sorted(
          entries_.begin(), entries_.end(),
          [](const Entry& a, const Entry& b) { return a.id < b.id; })) {
    return;
  }
  // From the lowest digit up, each pass stable. Counts of all digits are taken
  // in one pass over the entries, since they do not depend on the order.
  std::array<std::array<uint32_t, kBuckets>, kDigits> counts = {};
  for (const Entry& entry : entries_) {
    for (int d = 0; d < kDigits; ++d) {
      ++counts[d][Digit(entry.id, d)];
    }
  }
  sorted_.resize(entries_.size());
  for (int d = 0; d < kDigits; ++d) {
    // A digit that all ids share moves nothing; small ids share the high ones.
    if (counts[d][Digit(entries_[0].id, d)] == entries_.size()) {
      continue;
    }
    uint32_t begin = 0;
    for (uint32_t& count : counts[d]) {
      begin += std::exchange(count, begin);
    }
    for (const Entry& entry : entries_) {
      sorted_[counts[d][Digit(entry.id, d)]++] = entry;
    }
    entries_.swap(sorted_);
  }
}

void UniqueIds::Rank() {
  Sort();
  ids_.clear();
  ranks_.resize(entries_.size());
  // Equal ids lie side by side now.
  for (const Entry& entry : entries_) {
    if (ids_.empty() || ids_.back() != entry.id) {
      ids_.push_back(entry.id);
    }
    ranks_[entry.position] = static_cast<int32_t>(ids_.size()) - 1;
  }
}

}  // namespace weir
