#include "server/ps/table/row_slab.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "common/math/random.h"
#include "server/ps/memory/arena.h"

namespace weir {
namespace {

uint32_t Take(RowSlab* slab) {
  if (!slab->HasFree()) {
    slab->AddChunk();
  }
  return slab->Allocate();
}

TEST(RowSlabTest, HandsOutDistinctRowsOfTheirSize) {
  RowSlab slab(Arena::Heap(), 32);
  EXPECT_EQ(slab.row_bytes(), 144u);
  std::set<const char*> addresses;
  std::vector<uint32_t> rows;
  for (int i = 0; i < 5000; ++i) {
    rows.push_back(Take(&slab));
    const char* const at = reinterpret_cast<const char*>(slab.At(rows.back()));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(at) % alignof(RowHeader), 0u);
    const auto next = addresses.lower_bound(at);
    ASSERT_TRUE(next == addresses.end() || *next - at >= 144);
    ASSERT_TRUE(next == addresses.begin() || at - *std::prev(next) >= 144);
    addresses.insert(at);
  }
  // A freed row is used again before another chunk is asked for.
  const int64_t bytes = slab.bytes();
  for (const uint32_t row : rows) {
    slab.Free(row);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    Take(&slab);
  }
  EXPECT_EQ(slab.bytes(), bytes);
}

TEST(RowSlabTest, RoundsRowsUpToAnId) {
  EXPECT_EQ(RowSlab(Arena::Heap(), 1).row_bytes(), 24u);
  EXPECT_EQ(RowSlab(Arena::Heap(), 17).row_bytes(), 88u);
  EXPECT_EQ(RowSlab(Arena::Heap(), 12000).row_bytes(), 48016u);
}

// Random allocations, frees and releases against a map.
TEST(RowSlabTest, ReleaseMovesRowsOfTheLastChunk) {
  for (const int floats : {1, 32, 3000}) {
    RowSlab slab(Arena::Heap(), floats);
    std::map<uint32_t, uint64_t> live;
    RandomStream random(7);
    uint64_t next_id = 0;
    const auto check = [&] {
      for (const auto& [row, id] : live) {
        ASSERT_EQ(slab.At(row)->id, id);
        ASSERT_EQ(slab.At(row)->values()[floats - 1], static_cast<float>(id));
      }
    };
    for (int round = 0; round < 40; ++round) {
      const uint32_t takes = random.NextBelow(2000);
      for (uint32_t i = 0; i < takes; ++i) {
        const uint32_t row = Take(&slab);
        ASSERT_TRUE(live.emplace(row, next_id).second);
        slab.At(row)->id = next_id;
        slab.At(row)->values()[floats - 1] = static_cast<float>(next_id++);
      }
      const uint32_t drop = 1 + random.NextBelow(8);
      for (auto it = live.begin(); it != live.end();) {
        if (random.NextBelow(8) < drop) {
          slab.Free(it->first);
          it = live.erase(it);
        } else {
          ++it;
        }
      }
      if (round % 3 == 0) {
        while (slab.ReleaseChunk([&](uint32_t from, uint32_t to) {
          ASSERT_TRUE(live.emplace(to, live.at(from)).second);
          live.erase(from);
        })) {
          check();
        }
        // The rest is less than one chunk too much.
        EXPECT_LT(slab.bytes() / slab.chunk_bytes() * slab.rows_per_chunk() -
                      static_cast<int64_t>(live.size()),
                  static_cast<int64_t>(slab.rows_per_chunk()));
      }
      check();
    }
  }
}

}  // namespace
}  // namespace weir
