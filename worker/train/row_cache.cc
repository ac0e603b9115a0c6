#include "worker/train/row_cache.h"

#include <algorithm>

namespace weir {

const float* RowCache::Find(uint64_t id, uint64_t sequence,
                            uint64_t* read_at) const {
  const auto entry = entries_.find(id);
  // I1: asked here too, since Expire may have been called for a lookup before.
  if (entry == entries_.end() ||
      sequence - entry->second.sequence > contributions_max_) {
    return nullptr;
  }
  *read_at = entry->second.sequence;
  return values_.data() + entry->second.place * dim_;
}

void RowCache::Put(uint64_t id, uint64_t sequence, const float* row) {
  auto entry = entries_.find(id);
  if (entry == entries_.end()) {
    // I2: the newcomer goes, not a row that is kept. Rows expire within
    // contributions_max lookups, so a full cache has room again soon, and no
    // order of use has to be kept.
    if (entries_.size() >= rows_max_) {
      return;
    }
    size_t place = values_.size() / dim_;
    if (free_.empty()) {
      values_.resize(values_.size() + dim_);
    } else {
      place = free_.back();
      free_.pop_back();
    }
    entry = entries_.try_emplace(id, Entry{sequence, place}).first;
  }
  entry->second.sequence = sequence;
  std::copy_n(row, dim_, values_.data() + entry->second.place * dim_);
}

void RowCache::Expire(uint64_t sequence) {
  absl::erase_if(entries_, [&](const auto& entry) {
    const bool old = sequence - entry.second.sequence > contributions_max_;
    if (old) {
      free_.push_back(entry.second.place);
    }
    return old;
  });
}

}  // namespace weir
