// The memory of one stripe's rows: fixed-size rows in chunks.
//
// Place: under TableStripe. The index (row_index.h) names rows by number.
//
// Terms
//   row     a RowHeader, then the optimizer's floats: values [dim], state.
//   chunk   a power of two of rows, at most kChunkBytes unless 8 rows are more,
//           from the arena.
//
// Invariants
//   I1. A row stays where it is until it is freed or ReleaseChunk moves it.
// Threads: compatible; the stripe's lock.
// Cost: O(1) but for ReleaseChunk, which moves at most one chunk of rows.
#ifndef SERVER_PS_TABLE_ROW_SLAB_H_
#define SERVER_PS_TABLE_ROW_SLAB_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "server/ps/memory/arena.h"

namespace weir {

struct RowHeader {
  uint64_t id;
  uint32_t touched;  // the table's clock when the row was last used
  uint32_t updates;  // applied to the row so far; stays at 2^32 - 1

  float* values() { return reinterpret_cast<float*>(this + 1); }
  const float* values() const {
    return reinterpret_cast<const float*>(this + 1);
  }
};
static_assert(sizeof(RowHeader) == 16);

class RowSlab {
 public:
  // Large enough that the list of chunks stays in the second-level cache with
  // 10 M rows, small enough that a table of a few rows is a few MiB.
  static constexpr size_t kChunkBytes = 32 << 10;

  // `row_floats` floats follow each header. A chunk is at most `chunk_bytes`
  // long, unless 8 rows are more. The arena is borrowed.
  RowSlab(Arena* arena, int row_floats, size_t chunk_bytes = kChunkBytes);
  ~RowSlab();
  RowSlab(const RowSlab&) = delete;
  RowSlab& operator=(const RowSlab&) = delete;

  RowHeader* At(uint32_t row) const {
    return reinterpret_cast<RowHeader*>(chunks_[row >> shift_] +
                                        (row & mask_) * row_bytes_);
  }
  size_t row_bytes() const { return row_bytes_; }
  uint32_t rows_per_chunk() const { return mask_ + 1; }
  // The cost of one more chunk, and of all of them.
  int64_t chunk_bytes() const;
  int64_t bytes() const {
    return chunk_bytes() * static_cast<int64_t>(chunks_.size());
  }

  int64_t free_rows() const { return free_rows_; }
  bool HasFree() const { return free_rows_ > 0; }
  // `memory` is chunk_memory() bytes from the arena; null: asks for them.
  size_t chunk_memory() const { return rows_per_chunk() * row_bytes_; }
  void AddChunk(void* memory = nullptr);
  // The contents are whatever they were. REQUIRES: HasFree().
  uint32_t Allocate();
  void Free(uint32_t row);
  // Gives the last chunk back if its rows fit into what is free in the others,
  // moving them there; false if they do not. `moved` learns of each row.
  bool ReleaseChunk(
      const std::function<void(uint32_t from, uint32_t to)>& moved);

 private:
  static constexpr uint32_t kMaxRowsPerChunk = 256;
  struct Chunk {
    std::array<uint64_t, kMaxRowsPerChunk / 64> free = {};  // a bit per row
    uint32_t free_count = 0;
    bool listed = false;  // in with_free_
  };

  Arena* const arena_;
  const size_t row_bytes_;
  const int shift_;
  const uint32_t mask_;
  std::vector<char*> chunks_;
  // Never gets shorter, so that `listed` always agrees with with_free_.
  std::vector<Chunk> states_;
  // Every chunk with a free row, and some without.
  std::vector<uint32_t> with_free_;
  int64_t free_rows_ = 0;
};

}  // namespace weir

#endif  // SERVER_PS_TABLE_ROW_SLAB_H_
