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

Sender Slot(uint32_t slot, uint32_t generation = 1) {
  Sender sender;
  sender.set_slot(slot);
  sender.set_generation(generation);
  return sender;
}

// Room for `lists` that have `ids` together.
constexpr int64_t RoomFor(int64_t lists, int64_t ids) {
  return lists * kListOverheadBytes + ids * 8;
}

TEST(IdListCacheTest, KeepsNamedListsBySlotTableAndCount) {
  IdListCache cache;
  ASSERT_TRUE(cache.Resolve(Slot(3), Named(7, {1, 5})).ok());
  EXPECT_EQ(**cache.Resolve(Slot(3), NameAlone(7, 2)),
            (std::vector<uint64_t>{1, 5}));
  EXPECT_EQ(*cache.Resolve(Slot(4), NameAlone(7, 2)), nullptr);
  EXPECT_EQ(*cache.Resolve(Slot(3), NameAlone(7, 3)), nullptr);
  IdList other = NameAlone(7, 2);
  other.set_table(1);
  EXPECT_EQ(*cache.Resolve(Slot(3), other), nullptr);
}

TEST(IdListCacheTest, AReaderNamesNothing) {
  IdListCache cache;
  ASSERT_TRUE(cache.Resolve(Slot(3), Named(7, {1, 5})).ok());
  const auto ids = cache.Resolve(Slot(3, 0), Named(7, {2, 6}));
  EXPECT_EQ(**ids, (std::vector<uint64_t>{2, 6}));
  EXPECT_EQ(*cache.Resolve(Slot(3, 0), NameAlone(7, 2)), nullptr);
  EXPECT_EQ(**cache.Resolve(Slot(3), NameAlone(7, 2)),
            (std::vector<uint64_t>{1, 5}));
}

TEST(IdListCacheTest, AnotherGenerationBeginsWithoutLists) {
  IdListCache cache(RoomFor(1, 2));
  ASSERT_TRUE(cache.Resolve(Slot(0, 1), Named(7, {1, 5})).ok());
  EXPECT_EQ(*cache.Resolve(Slot(0, 2), NameAlone(7, 2)), nullptr);
  ASSERT_TRUE(cache.Resolve(Slot(0, 2), Named(7, {2, 6})).ok());
  // What the older one still sends changes nothing.
  EXPECT_EQ(*cache.Resolve(Slot(0, 1), NameAlone(7, 2)), nullptr);
  ASSERT_TRUE(cache.Resolve(Slot(0, 1), Named(8, {3, 7})).ok());
  EXPECT_EQ(**cache.Resolve(Slot(0, 2), NameAlone(7, 2)),
            (std::vector<uint64_t>{2, 6}));
}

TEST(IdListCacheTest, NoSlotTakesAnothersRoom) {
  IdListCache cache(RoomFor(1, 2));
  ASSERT_TRUE(cache.Resolve(Slot(0), Named(7, {1, 5})).ok());
  for (uint64_t name = 1; name < 100; ++name) {
    ASSERT_TRUE(cache.Resolve(Slot(1), Named(name, {1, 5})).ok());
  }
  EXPECT_NE(*cache.Resolve(Slot(0), NameAlone(7, 2)), nullptr);
  EXPECT_NE(*cache.Resolve(Slot(1), NameAlone(99, 2)), nullptr);
  EXPECT_EQ(*cache.Resolve(Slot(1), NameAlone(98, 2)), nullptr);
}

TEST(IdListCacheTest, TheNewestListOfANameCounts) {
  IdListCache cache(RoomFor(1, 3));  // no room for both
  ASSERT_TRUE(cache.Resolve(Slot(0), Named(7, {1, 5})).ok());
  ASSERT_TRUE(cache.Resolve(Slot(0), Named(7, {2, 6})).ok());
  ASSERT_NE(*cache.Resolve(Slot(0), NameAlone(7, 2)), nullptr);
  EXPECT_EQ(**cache.Resolve(Slot(0), NameAlone(7, 2)),
            (std::vector<uint64_t>{2, 6}));
}

TEST(IdListCacheTest, TheLeastRecentlyUsedListGoesFirst) {
  IdListCache cache(RoomFor(2, 5));
  ASSERT_TRUE(cache.Resolve(Slot(0), Named(1, {1, 2})).ok());
  ASSERT_TRUE(cache.Resolve(Slot(0), Named(2, {3, 4})).ok());
  ASSERT_NE(*cache.Resolve(Slot(0), NameAlone(1, 2)), nullptr);
  ASSERT_TRUE(cache.Resolve(Slot(0), Named(3, {5, 6})).ok());
  EXPECT_NE(*cache.Resolve(Slot(0), NameAlone(1, 2)), nullptr);
  EXPECT_EQ(*cache.Resolve(Slot(0), NameAlone(2, 2)), nullptr);
  // A list that is larger than the bound is given out and not kept.
  const std::vector<uint64_t> many({1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                    11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
                                    21, 22, 23, 24, 25, 26, 27, 28, 29, 30,
                                    31, 32, 33, 34, 35, 36, 37, 38, 39, 40});
  const auto large = cache.Resolve(Slot(0), Named(4, many));
  EXPECT_EQ((*large)->size(), many.size());
  EXPECT_EQ(*cache.Resolve(Slot(0), NameAlone(4, 40)), nullptr);
}

TEST(IdListCacheTest, ListsWithoutANameAreNotKept) {
  IdListCache cache(RoomFor(1, 1));
  ASSERT_TRUE(cache.Resolve(Slot(0), Named(7, {5})).ok());
  ASSERT_TRUE(cache.Resolve(Slot(0), Named(0, {1})).ok());
  EXPECT_NE(*cache.Resolve(Slot(0), NameAlone(7, 1)),
            nullptr);  // has all the room
  EXPECT_THAT(cache.Resolve(Slot(0), NameAlone(0, 1)).status().message(),
              HasSubstr("neither ids nor a name"));
  EXPECT_THAT(cache.Resolve(Slot(0), NameAlone(9, 0)).status().message(),
              HasSubstr("0 ids"));
}

}  // namespace
}  // namespace weir
