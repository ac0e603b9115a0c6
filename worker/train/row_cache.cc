#include "worker/train/row_cache.h"

#include <algorithm>

namespace weir {

const float* RowCache::Find(uint64_t id, uint64_t item,
                            uint64_t* read_at) const {
  const auto entry = entries_.find(id);
  if (entry == entries_.end() || item - entry->second.item > items_max_) {
    return nullptr;
  }
  *read_at = entry->second.item;
  return values_.data() + entry->second.place * dim_;
}

void RowCache::Put(uint64_t id, uint64_t item, const float* row) {
  auto entry = entries_.find(id);
  if (entry == entries_.end()) {
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
    entry = entries_.try_emplace(id, Entry{item, place}).first;
  }
  entry->second.item = item;
  std::copy_n(row, dim_, values_.data() + entry->second.place * dim_);
}

void RowCache::Expire(uint64_t item) {
  absl::erase_if(entries_, [&](const auto& entry) {
    const bool old = item - entry.second.item > items_max_;
    if (old) {
      free_.push_back(entry.second.place);
    }
    return old;
  });
}

}  // namespace weir
