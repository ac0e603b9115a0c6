// Keeps rows that a worker looked up a short while ago, to read them again.
//
// Place: TableFeed keeps one for each table that asks for it. Where few ids are
//   frequent, the next batches need the same rows again, and these need not
//   travel each time.
//
// Terms
//   sequence   the number of a lookup of this worker, from 0.
//
// Invariants
//   I1. A row that lookup s read is given to lookups s to s +
//       contributions_max, and to no later one.
//   I2. At most rows_max rows are kept. While the cache is full, new ids are
//       not taken.
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

  // Returns the row [dim] and, in *read_at, the lookup that read it; or null,
  // with *read_at unchanged. Valid until Put.
  // REQUIRES: `sequence` is not below that of any Put.
  const float* Find(uint64_t id, uint64_t sequence, uint64_t* read_at) const;
  // Keeps a copy of a row that lookup `sequence` has read.
  void Put(uint64_t id, uint64_t sequence, const float* row);
  // Forgets the rows that lookup `sequence` may not be given any more.
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
  std::vector<size_t> free_;   // places that no entry uses
};

}  // namespace weir

#endif  // WORKER_TRAIN_ROW_CACHE_H_
