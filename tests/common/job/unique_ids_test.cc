#include "common/job/unique_ids.h"

#include <algorithm>
#include <map>
#include <vector>

#include "common/math/random.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using Ids = std::vector<uint64_t>;

// The same by a map: each distinct id and its rank.
void ExpectRanked(const UniqueIds& unique, const Ids& entries) {
  std::map<uint64_t, int32_t> ranks;
  for (const uint64_t id : entries) {
    ranks[id] = 0;
  }
  Ids ids;
  for (auto& [id, rank] : ranks) {
    rank = static_cast<int32_t>(ids.size());
    ids.push_back(id);
  }
  EXPECT_EQ(unique.ids(), ids);
  ASSERT_EQ(unique.ranks().size(), entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    ASSERT_EQ(unique.ranks()[i], ranks[entries[i]]) << i;
  }
}

TEST(UniqueIdsTest, RanksEntriesInAnyOrderWithRepeats) {
  UniqueIds unique;
  for (const Ids& entries :
       {Ids{7, 3, 7, ~uint64_t{0}, 0}, Ids{1, 2, 9}, Ids{1, 1, 1}, Ids{},
        Ids{uint64_t{1} << 63, 5, uint64_t{1} << 33, 5}}) {
    unique.Clear();
    unique.Append(entries);
    unique.Rank();
    ExpectRanked(unique, entries);
  }
}

TEST(UniqueIdsTest, RanksTheEntriesOfSeveralListsTogether) {
  RandomStream random(3);
  UniqueIds unique;
  // The last digits alone, all of them, and few distinct ones.
  for (const uint64_t mask : {uint64_t{0x7ff}, ~uint64_t{0}, uint64_t{7}}) {
    unique.Clear();
    Ids entries;
    for (int list = 0; list < 3; ++list) {
      Ids ids;
      for (int i = 0; i < 1000; ++i) {
        ids.push_back(
            (uint64_t{random.NextBelow(~0u)} << 32 | random.NextBelow(~0u)) &
            mask);
      }
      unique.Append(ids);
      entries.insert(entries.end(), ids.begin(), ids.end());
      EXPECT_EQ(unique.entries(), entries.size());
    }
    unique.Rank();
    ExpectRanked(unique, entries);
  }
}

}  // namespace
}  // namespace weir
