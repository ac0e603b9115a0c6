#include "server/ps/rows/id_list_cache.h"

#include <gtest/gtest.h>

#include <vector>

#include "gmock/gmock.h"
#include "proto/wire/id_list.h"

namespace weir {
namespace {

using testing::HasSubstr;

IdList Named(uint64_t name, const std::vector<uint64_t>& ids) {
  IdList list;
  list.set_count(static_cast<uint32_t>(ids.size()));
  list.set_deltas(EncodeIds(ids));
  list.set_name(name);
  return list;
}

IdList NameAlone(uint64_t name, uint32_t count) {
  IdList list;
  list.set_count(count);
  list.set_name(name);
  return list;
}

TEST(IdListCacheTest, KeepsNamedListsBySlotTableAndCount) {
  IdListCache cache;
  ASSERT_TRUE(cache.Resolve(3, Named(7, {1, 5})).ok());
  EXPECT_EQ(**cache.Resolve(3, NameAlone(7, 2)), (std::vector<uint64_t>{1, 5}));
  EXPECT_EQ(*cache.Resolve(4, NameAlone(7, 2)), nullptr);
  EXPECT_EQ(*cache.Resolve(3, NameAlone(7, 3)), nullptr);
  IdList other = NameAlone(7, 2);
  other.set_table(1);
  EXPECT_EQ(*cache.Resolve(3, other), nullptr);
}

TEST(IdListCacheTest, TheNewestListOfANameCounts) {
  IdListCache cache(/*bytes_max=*/24);  // no room for both
  ASSERT_TRUE(cache.Resolve(0, Named(7, {1, 5})).ok());
  ASSERT_TRUE(cache.Resolve(0, Named(7, {2, 6})).ok());
  ASSERT_NE(*cache.Resolve(0, NameAlone(7, 2)), nullptr);
  EXPECT_EQ(**cache.Resolve(0, NameAlone(7, 2)), (std::vector<uint64_t>{2, 6}));
}

TEST(IdListCacheTest, TheLeastRecentlyUsedListGoesFirst) {
  IdListCache cache(/*bytes_max=*/40);  // five ids
  ASSERT_TRUE(cache.Resolve(0, Named(1, {1, 2})).ok());
  ASSERT_TRUE(cache.Resolve(0, Named(2, {3, 4})).ok());
  ASSERT_NE(*cache.Resolve(0, NameAlone(1, 2)), nullptr);
  ASSERT_TRUE(cache.Resolve(0, Named(3, {5, 6})).ok());
  EXPECT_NE(*cache.Resolve(0, NameAlone(1, 2)), nullptr);
  EXPECT_EQ(*cache.Resolve(0, NameAlone(2, 2)), nullptr);
  // A list that is larger than the bound is given out and not kept.
  const auto large = cache.Resolve(0, Named(4, {1, 2, 3, 4, 5, 6}));
  EXPECT_EQ((*large)->size(), 6u);
  EXPECT_EQ(*cache.Resolve(0, NameAlone(4, 6)), nullptr);
}

TEST(IdListCacheTest, ListsWithoutANameAreNotKept) {
  IdListCache cache(/*bytes_max=*/8);
  ASSERT_TRUE(cache.Resolve(0, Named(7, {5})).ok());
  ASSERT_TRUE(cache.Resolve(0, Named(0, {1})).ok());
  EXPECT_NE(*cache.Resolve(0, NameAlone(7, 1)), nullptr);  // has all the room
  EXPECT_THAT(cache.Resolve(0, NameAlone(0, 1)).status().message(),
              HasSubstr("neither ids nor a name"));
  EXPECT_THAT(cache.Resolve(0, NameAlone(9, 0)).status().message(),
              HasSubstr("0 ids"));
}

}  // namespace
}  // namespace weir
