// Finds a row by its id: extendible hashing over segments of buckets.
//
// Place: under TableStripe, one for each stripe.
//
// Terms
//   hash       IndexHash(id). Its top bits name the stripe (skip_bits of them),
//              the next ones the segment, the lower 32 the bucket, the last 8
//              the tag.
//   bucket     one cache line: 12 tags, 12 row numbers, and how many rows
//              passed it because it was full.
//   segment    63 buckets and a header, 4 KiB. Holds a range of hashes; when it
//              is full, half of the range goes to a new one.
//   directory  2^depth entries, one for each prefix of hashes.
//
// Invariants
//   I1. A row is in the first bucket from its home on that had room, and every
//       full one on the way counts it in `passed`. So a search ends at the
//       first bucket that nothing passed, and erasing needs no tombstones.
//   I2. An insertion moves the rows of one segment at most, kMaxRows: it never
//       waits for all.
//   I3. Beyond kEntriesMin the directory has at most kEntriesMax entries for
//       each segment that there is or will be (Expect). Random ids stay below
//       a quarter of that. IndexHash can be inverted: without the bound, a few
//       hundred ids that were chosen to share a long prefix would double the
//       directory until no memory is left.
// Threads: compatible; the stripe's lock.
// Cost: one cache line a search, nearly always; 7.5 to 15 bytes a row with the
//   directory.
// Source: Fagin et al., "Extendible Hashing", ACM TODS 4(3), 1979; the passed
//         count is that of Facebook's F14.
#ifndef SERVER_PS_TABLE_ROW_INDEX_H_
#define SERVER_PS_TABLE_ROW_INDEX_H_

#include <cstdint>
#include <vector>

#include "server/ps/memory/arena.h"
#include "server/ps/table/row_slab.h"

namespace weir {

class RowIndex {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr int kMaxRows = 640;  // of a segment's 756 places
  static constexpr int64_t kSegmentMemory = 4096;
  static constexpr int64_t kEntriesMax = 16;
  static constexpr int64_t kEntriesMin = 4096;
  // One more segment, with an entry of the directory.
  static constexpr int64_t kSegmentBytes = kSegmentMemory + 2 * sizeof(void*);

  // Both are borrowed. `skip_bits` top bits are the same in all hashes.
  RowIndex(Arena* arena, const RowSlab* slab, int skip_bits);
  ~RowIndex();
  RowIndex(const RowIndex&) = delete;
  RowIndex& operator=(const RowIndex&) = delete;

  int64_t rows() const { return rows_; }
  int64_t bytes() const {
    return kSegmentMemory * (segments_ + (spare_ != nullptr)) +
           static_cast<int64_t>(directory_.capacity() * sizeof(void*));
  }

  // The memory that a search for `hash` reads first. The caller prefetches it:
  // GCC takes a const method that does nothing but prefetch for one without
  // effect, and leaves calls of it out.
  const void* FirstLine(uint64_t hash) const {
    return Home(SegmentOf(hash), hash);
  }
  // The first row with the tag of `hash`, which need not be its row, or kNone:
  // what to prefetch. Never looks at a row.
  uint32_t Candidate(uint64_t hash) const;
  // The row of `id`, or kNone.
  uint32_t Find(uint64_t id, uint64_t hash) const;

  // True if the segment of `hash` must be split, or lose rows, before Insert.
  bool IsFull(uint64_t hash) const { return SegmentOf(hash)->rows >= kMaxRows; }
  // False: the split would break I3, so there is no room for more rows of this
  // prefix.
  bool MaySplit(uint64_t hash) const;
  // Says that about `rows` rows are going to be inserted. In the order of their
  // hashes the first ones share as long a prefix as in the whole (I3).
  void Expect(int64_t rows) { expected_segments_ = rows / (kMaxRows / 2); }
  // The bytes that Split would add to bytes().
  int64_t SplitBytes(uint64_t hash) const;
  // kSegmentMemory bytes from the arena for the next Split.
  bool HasSpare() const { return spare_ != nullptr; }
  void GiveSpare(void* memory) { spare_ = memory; }  // REQUIRES: !HasSpare()
  // REQUIRES: MaySplit(hash).
  void Split(uint64_t hash);
  // REQUIRES: !IsFull(hash); no row has this hash; the row's header is written.
  void Insert(uint64_t hash, uint32_t row);
  // REQUIRES: the row is there.
  void Erase(uint64_t hash, uint32_t row);
  void Renumber(uint64_t hash, uint32_t from, uint32_t to);

  // Appends the rows of the segment that holds `hash`, in no order, and returns
  // the first hash behind that segment; 0 when it was the last one.
  uint64_t RowsAt(uint64_t hash, std::vector<uint32_t>* rows) const;

 private:
  static constexpr int kPlaces = 12;
  static constexpr uint32_t kBuckets = 63;
  struct alignas(64) Bucket {
    uint8_t tag[kPlaces];  // 0: empty
    uint32_t passed;
    uint32_t row[kPlaces];
  };
  struct alignas(64) Segment {
    int rows;
    int depth;  // top bits that all hashes in it share
    Bucket buckets[kBuckets];
  };
  static_assert(sizeof(Bucket) == 64 && sizeof(Segment) == kSegmentMemory);

  static uint8_t TagOf(uint64_t hash) {
    const uint8_t tag = static_cast<uint8_t>(hash);
    return tag == 0 ? 1 : tag;
  }
  static uint32_t HomeOf(uint64_t hash) {
    return static_cast<uint32_t>((hash & 0xffffffffu) * kBuckets >> 32);
  }
  static const Bucket* Home(const Segment* segment, uint64_t hash) {
    return &segment->buckets[HomeOf(hash)];
  }
  // A bit for each place of the bucket that holds `tag`.
  static uint32_t Matches(const Bucket& bucket, uint8_t tag);
  static void Place(Segment* segment, uint64_t hash, uint32_t row);
  struct Spot {
    uint32_t bucket = 0;
    int place = 0;
  };
  // Finds the first row with the tag of `hash` for which accept(row) holds.
  template <class Accept>
  static bool Search(const Segment& segment, uint64_t hash,
                     const Accept& accept, Spot* spot);
  // Returns that row, or kNone.
  template <class Accept>
  uint32_t FirstRow(uint64_t hash, const Accept& accept) const;
  // REQUIRES: the row is there.
  static Spot SpotOf(const Segment& segment, uint64_t hash, uint32_t row);

  size_t DirectoryIndex(uint64_t hash) const {
    // Two shifts: depth_ may be 0.
    return (hash << skip_bits_) >> (63 - depth_) >> 1;
  }
  Segment* SegmentOf(uint64_t hash) const {
    return directory_[DirectoryIndex(hash)];
  }
  Segment* NewSegment(int depth);

  Arena* const arena_;
  const RowSlab* const slab_;
  const int skip_bits_;
  int depth_ = 0;
  std::vector<Segment*> directory_;
  void* spare_ = nullptr;
  int64_t segments_ = 0;
  int64_t expected_segments_ = 0;
  int64_t rows_ = 0;
};

}  // namespace weir

#endif  // SERVER_PS_TABLE_ROW_INDEX_H_
