#include "server/ps/table/row_index.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/job/row_hash.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace weir {
namespace {

// The bucket behind `bucket`, in a ring of `count`.
inline uint32_t NextBucket(uint32_t bucket, uint32_t count) {
  ++bucket;
  if (bucket == count) {
    return 0;
  }
  return bucket;
}

}  // namespace

RowIndex::RowIndex(Arena* arena, const RowSlab* slab, int skip_bits)
    : arena_(arena), slab_(slab), skip_bits_(skip_bits) {
  directory_.push_back(NewSegment(0));
}

RowIndex::~RowIndex() {
  Segment* last = nullptr;
  for (Segment* segment : directory_) {
    if (segment != last) {  // entries of one segment are neighbours
      arena_->Free(segment, sizeof(Segment));
    }
    last = segment;
  }
  if (spare_ != nullptr) {
    arena_->Free(spare_, sizeof(Segment));
  }
}

RowIndex::Segment* RowIndex::NewSegment(int depth) {
  // The spare one was asked for without the stripe's lock.
  void* memory = std::exchange(spare_, nullptr);
  if (memory == nullptr) {
    memory = arena_->Allocate(sizeof(Segment));
  }
  std::memset(memory, 0, sizeof(Segment));
  Segment* const segment = static_cast<Segment*>(memory);
  segment->depth = depth;
  ++segments_;
  return segment;
}

inline uint32_t RowIndex::Matches(const Bucket& bucket, uint8_t tag) {
#if defined(__SSE2__)
  // The 4 bytes behind the tags are `passed`.
  const __m128i tags =
      _mm_load_si128(reinterpret_cast<const __m128i*>(&bucket));
  const __m128i same =
      _mm_cmpeq_epi8(tags, _mm_set1_epi8(static_cast<char>(tag)));
  return static_cast<uint32_t>(_mm_movemask_epi8(same)) & ((1u << kPlaces) - 1);
#else
  uint32_t mask = 0;
  for (int i = 0; i < kPlaces; ++i) {
    mask |= static_cast<uint32_t>(bucket.tag[i] == tag) << i;
  }
  return mask;
#endif
}

template <class Accept>
inline bool RowIndex::Search(const Segment& segment, uint64_t hash,
                             const Accept& accept, Spot* spot) {
  const uint8_t tag = TagOf(hash);
  uint32_t b = HomeOf(hash);
  for (uint32_t tried = 0; tried < kBuckets; ++tried) {
    const Bucket& bucket = segment.buckets[b];
    for (uint32_t mask = Matches(bucket, tag); mask != 0; mask &= mask - 1) {
      const int place = std::countr_zero(mask);
      if (accept(bucket.row[place])) {
        *spot = {b, place};
        return true;
      }
    }
    if (bucket.passed == 0) {  // I1
      break;
    }
    b = NextBucket(b, kBuckets);
  }
  return false;
}

template <class Accept>
inline uint32_t RowIndex::FirstRow(uint64_t hash, const Accept& accept) const {
  const Segment& segment = *SegmentOf(hash);
  Spot spot;
  if (!Search(segment, hash, accept, &spot)) {
    return kNone;
  }
  return segment.buckets[spot.bucket].row[spot.place];
}

uint32_t RowIndex::Candidate(uint64_t hash) const {
  return FirstRow(hash, [](uint32_t) { return true; });
}

uint32_t RowIndex::Find(uint64_t id, uint64_t hash) const {
  return FirstRow(
      hash, [this, id](uint32_t row) { return slab_->At(row)->id == id; });
}

void RowIndex::Place(Segment* segment, uint64_t hash, uint32_t row) {
  uint32_t b = HomeOf(hash);
  while (true) {
    Bucket& bucket = segment->buckets[b];
    const uint32_t empty = Matches(bucket, 0);
    if (empty != 0) {
      const int place = std::countr_zero(empty);
      bucket.tag[place] = TagOf(hash);
      bucket.row[place] = row;
      ++segment->rows;
      return;
    }
    // I1: a search for this row must not end here. IsFull leaves more than a
    // hundred places empty, so the walk ends.
    ++bucket.passed;
    b = NextBucket(b, kBuckets);
  }
}

void RowIndex::Insert(uint64_t hash, uint32_t row) {
  Segment* const segment = SegmentOf(hash);
  WEIR_CHECK(segment->rows < kMaxRows);
  Place(segment, hash, row);
  ++rows_;
}

RowIndex::Spot RowIndex::SpotOf(const Segment& segment, uint64_t hash,
                                uint32_t row) {
  Spot spot;
  WEIR_CHECK(Search(
      segment, hash, [row](uint32_t one) { return one == row; }, &spot));
  return spot;
}

void RowIndex::Erase(uint64_t hash, uint32_t row) {
  Segment* const segment = SegmentOf(hash);
  const Spot spot = SpotOf(*segment, hash, row);
  segment->buckets[spot.bucket].tag[spot.place] = 0;
  // I1: no full bucket on its way counts the row any more.
  for (uint32_t b = HomeOf(hash); b != spot.bucket;
       b = NextBucket(b, kBuckets)) {
    --segment->buckets[b].passed;
  }
  --segment->rows;
  --rows_;
}

void RowIndex::Renumber(uint64_t hash, uint32_t from, uint32_t to) {
  Segment* const segment = SegmentOf(hash);
  const Spot spot = SpotOf(*segment, hash, from);
  segment->buckets[spot.bucket].row[spot.place] = to;
}

// I3. A split that leaves the directory as it is is always possible.
bool RowIndex::MaySplit(uint64_t hash) const {
  const int64_t entries_max = std::max(
      kEntriesMin, kEntriesMax * std::max(segments_ + 1, expected_segments_));
  return SegmentOf(hash)->depth < depth_ ||
         2 * static_cast<int64_t>(directory_.size()) <= entries_max;
}

int64_t RowIndex::SplitBytes(uint64_t hash) const {
  size_t bytes = 0;
  if (SegmentOf(hash)->depth == depth_ &&
      directory_.capacity() < 2 * directory_.size()) {
    // The directory doubles.
    bytes += (2 * directory_.size() - directory_.capacity()) * sizeof(void*);
  }
  if (spare_ == nullptr) {  // a spare segment counts in bytes() already
    bytes += sizeof(Segment);
  }
  return static_cast<int64_t>(bytes);
}

void RowIndex::Split(uint64_t hash) {
  Segment* const lower = SegmentOf(hash);
  // Every prefix has one bit more then: each entry stands twice.
  if (lower->depth == depth_) {
    std::vector<Segment*> twice;
    twice.reserve(2 * directory_.size());
    for (Segment* segment : directory_) {
      twice.push_back(segment);
      twice.push_back(segment);
    }
    directory_ = std::move(twice);
    ++depth_;
  }
  // I2: the rows of this segment alone move, to it and to the new one.
  std::vector<uint32_t> rows;
  rows.reserve(kMaxRows);
  RowsAt(hash, &rows);
  for (const uint32_t row : rows) {
    __builtin_prefetch(slab_->At(row));
  }
  const int depth = lower->depth + 1;
  // Before `lower` is emptied: there may be no memory for it.
  Segment* const upper = NewSegment(depth);
  std::memset(lower, 0, sizeof(*lower));
  lower->depth = depth;

  // The directory's entries of both: those that share depth - 1 bits.
  const size_t count = size_t{1} << (depth_ - depth);
  const size_t begin = DirectoryIndex(hash) / (2 * count) * (2 * count);
  std::fill_n(directory_.begin() + static_cast<int64_t>(begin + count), count,
              upper);
  for (const uint32_t row : rows) {
    const uint64_t moved = IndexHash(slab_->At(row)->id);
    Place(SegmentOf(moved), moved, row);
  }
}

uint64_t RowIndex::RowsAt(uint64_t hash, std::vector<uint32_t>* rows) const {
  const Segment* const segment = SegmentOf(hash);
  for (const Bucket& bucket : segment->buckets) {
    for (int i = 0; i < kPlaces; ++i) {
      if (bucket.tag[i] != 0) {
        rows->push_back(bucket.row[i]);
      }
    }
  }
  // The segment's range in hashes without the bits that all share.
  const uint64_t own = hash << skip_bits_;
  const int shift = 64 - segment->depth;
  if (shift == 64) {  // the only segment; a shift by 64 is undefined
    return 0;
  }
  const uint64_t next = ((own >> shift) + 1) << shift;
  if (next == 0) {  // wrapped: it was the last one
    return 0;
  }
  // The shared bits come back in front.
  uint64_t stripe = 0;
  if (skip_bits_ != 0) {
    stripe = hash >> (64 - skip_bits_) << (64 - skip_bits_);
  }
  return stripe | (next >> skip_bits_);
}

}  // namespace weir
