// Rows that a worker looked up a short while ago, to be read again.
//
// Place: TableFeed keeps one for each table that asks for it. Rows of a skewed
//   table come again in the next batches; they need not travel each time.
//
// Terms
//   sequence   the number of a lookup of this worker, from 0.
//
// Invariants
//   I1. A row is given out for at most `contributions_max` of them after it
//       was read.
//   I2. At most rows_max rows are kept; more are not taken while it is full.
// Threads: compatible.
#ifndef WORKER_TRAIN_ROW_CACHE_H_
#define WORKER_TRAIN_ROW_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace weir {

class RowCache {
 public:
  RowCache(size_t dim, size_t rows_max, uint64_t contributions_max)
      : dim_(dim), rows_max_(rows_max), contributions_max_(contributions_max) {}

  // The row [dim] and the lookup that read it, or null. Valid until Put.
  const float* Find(uint64_t id, uint64_t sequence, uint64_t* read_at) const;
  // Keeps a copy of a row that `contribution` has read.
  void Put(uint64_t id, uint64_t sequence, const float* row);
  // Forgets what `contribution` and later ones may not read.
  void Expire(uint64_t sequence);

  size_t rows() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t sequence = 0;
    size_t place = 0;
  };

  const size_t dim_;
  const size_t rows_max_;
  const uint64_t contributions_max_;
  absl::flat_hash_map<uint64_t, Entry> entries_;
  std::vector<float> values_;  // [places, dim]
  std::vector<size_t> free_;   // places
};

}  // namespace weir

#endif  // WORKER_TRAIN_ROW_CACHE_H_
