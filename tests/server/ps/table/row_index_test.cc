#include "server/ps/table/row_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <unordered_map>

#include "common/job/row_hash.h"
#include "common/math/random.h"
#include "tests/server/ps/table/id_of_hash.h"

namespace weir {
namespace {

struct Tester {
  explicit Tester(int skip_bits = 0)
      : slab(Arena::Heap(), 1), index(Arena::Heap(), &slab, skip_bits) {}

  // Returns kNone if there is no room (I3).
  uint32_t Insert(uint64_t id) {
    const uint64_t hash = IndexHash(id);
    while (index.IsFull(hash)) {
      if (!index.MaySplit(hash)) {
        return RowIndex::kNone;
      }
      const int64_t bytes = index.bytes() + index.SplitBytes(hash);
      index.Split(hash);
      EXPECT_EQ(index.bytes(), bytes);
    }
    if (!slab.HasFree()) {
      slab.AddChunk();
    }
    const uint32_t row = slab.Allocate();
    slab.At(row)->id = id;
    index.Insert(hash, row);
    return row;
  }
  void Erase(uint64_t id) {
    const uint32_t row = index.Find(id, IndexHash(id));
    index.Erase(IndexHash(id), row);
    slab.Free(row);
  }
  uint32_t Find(uint64_t id) const { return index.Find(id, IndexHash(id)); }

  RowSlab slab;
  RowIndex index;
};

TEST(RowIndexTest, IdsThatShareAPrefixDoNotGrowTheDirectory) {
  Tester t;
  int inserted = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    const uint64_t id = IdOfHash(uint64_t{0xabcdef1234} << 24 | i << 8 | 1);
    ASSERT_EQ(IndexHash(id) >> 24, 0xabcdef1234u);
    inserted += t.Insert(id) != RowIndex::kNone ? 1 : 0;
  }
  EXPECT_EQ(inserted, RowIndex::kMaxRows);
  EXPECT_LT(t.index.bytes(), 1 << 20);
  // Others still find room, but for those next to the crowd.
  int refused = 0;
  for (uint64_t id = 0; id < 100000; ++id) {
    refused += t.Insert(id) == RowIndex::kNone ? 1 : 0;
  }
  EXPECT_LE(refused, 200000 / RowIndex::kEntriesMin);
}

// The first rows of 2^30 that come in the order of their hashes, as those of a
// checkpoint do: 640 of them share 20 bits.
TEST(RowIndexTest, RowsInTheOrderOfTheirHashesFindRoomIfTheyAreExpected) {
  for (const bool expected : {false, true}) {
    Tester t;
    if (expected) {
      t.index.Expect(int64_t{1} << 30);
    }
    int refused = 0;
    for (uint64_t i = 0; i < 3000; ++i) {
      const uint64_t hash = i << 34 | i * 0x9e3779b97f4a7c15u >> 30;
      refused += t.Insert(IdOfHash(hash)) == RowIndex::kNone ? 1 : 0;
    }
    EXPECT_EQ(refused, expected ? 0 : 3000 - RowIndex::kMaxRows);
  }
}

TEST(RowIndexTest, FindsAnyId) {
  Tester t;
  for (const uint64_t id : {uint64_t{0}, ~uint64_t{0}, uint64_t{1},
                            uint64_t{1} << 63, uint64_t{255} << 56}) {
    EXPECT_EQ(t.Find(id), RowIndex::kNone);
    const uint32_t row = t.Insert(id);
    EXPECT_EQ(t.Find(id), row);
    EXPECT_EQ(t.index.Candidate(IndexHash(id)), row);
  }
  EXPECT_EQ(t.index.rows(), 5);
}

// Random insertions, erasures and renumberings against a map; counting ids
// and random ones.
TEST(RowIndexTest, AgreesWithAMap) {
  for (const bool counting : {true, false}) {
    Tester t;
    std::unordered_map<uint64_t, uint32_t> expected;
    RandomStream random(3);
    const auto draw = [&] {
      const uint64_t k = random.NextBelow(60000);
      return counting ? k : MixKey(5, k);
    };
    for (int i = 0; i < 300000; ++i) {
      const uint64_t id = draw();
      const auto found = expected.find(id);
      ASSERT_EQ(t.Find(id),
                found == expected.end() ? RowIndex::kNone : found->second);
      // Grows to most of the ids, shrinks to a few, grows again.
      const bool growing = i % 150000 < 100000;
      if (found == expected.end()) {
        if (growing) {
          expected[id] = t.Insert(id);
        }
      } else if (!growing) {
        t.Erase(id);
        expected.erase(found);
      }
    }
    EXPECT_EQ(t.index.rows(), static_cast<int64_t>(expected.size()));
    for (const auto& [id, row] : expected) {
      ASSERT_EQ(t.Find(id), row);
    }
  }
}

TEST(RowIndexTest, RenumbersARow) {
  Tester t;
  t.Insert(1);
  const uint32_t row = t.Insert(2);
  t.slab.AddChunk();
  const uint32_t other = t.slab.Allocate();
  t.slab.At(other)->id = 2;
  t.index.Renumber(IndexHash(2), row, other);
  EXPECT_EQ(t.Find(2), other);
  EXPECT_NE(t.Find(1), other);
}

TEST(RowIndexTest, WalksSegmentsInTheOrderOfHashes) {
  for (const int skip_bits : {0, 3}) {
    Tester t(skip_bits);
    std::vector<uint64_t> expected;
    const uint64_t stripe =
        skip_bits == 0 ? 0 : IndexHash(1) >> (64 - skip_bits);
    for (uint64_t id = 1; id < 40000; ++id) {
      if (skip_bits == 0 || IndexHash(id) >> (64 - skip_bits) == stripe) {
        t.Insert(id);
        expected.push_back(IndexHash(id));
      }
    }
    std::sort(expected.begin(), expected.end());
    std::vector<uint64_t> walked;
    uint64_t at = skip_bits == 0 ? 0 : stripe << (64 - skip_bits);
    int segments = 0;
    do {
      std::vector<uint32_t> rows;
      const uint64_t next = t.index.RowsAt(at, &rows);
      std::vector<uint64_t> hashes;
      for (const uint32_t row : rows) {
        hashes.push_back(IndexHash(t.slab.At(row)->id));
        ASSERT_GE(hashes.back(), at);
        ASSERT_TRUE(next == 0 || hashes.back() < next);
      }
      std::sort(hashes.begin(), hashes.end());
      walked.insert(walked.end(), hashes.begin(), hashes.end());
      at = next;
      ++segments;
    } while (at != 0);
    EXPECT_EQ(walked, expected);
    EXPECT_GT(segments, 4);
  }
}

TEST(RowIndexTest, TakesAtMost15BytesARow) {
  Tester t;
  for (uint64_t id = 0; id < 200000; ++id) {
    t.Insert(id);
    if (id > 20000 && id % 1000 == 0) {
      ASSERT_LE(static_cast<double>(t.index.bytes()),
                15.0 * static_cast<double>(id));
    }
  }
}

}  // namespace
}  // namespace weir
