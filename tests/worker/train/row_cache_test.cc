#include "worker/train/row_cache.h"

#include <gtest/gtest.h>

#include <vector>

namespace weir {
namespace {

TEST(RowCacheTest, GivesARowOutForAsLongAsItMay) {
  RowCache cache(/*dim=*/2, /*rows_max=*/10, /*contributions_max=*/3);
  const std::vector<float> row = {1, 2};
  cache.Put(7, 5, row.data());
  uint64_t read_at = 0;
  for (const uint64_t sequence : {5u, 6u, 8u}) {
    const float* const found = cache.Find(7, sequence, &read_at);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found[1], 2.0f);
    EXPECT_EQ(read_at, 5u);
  }
  EXPECT_EQ(cache.Find(7, 9, &read_at), nullptr);
  EXPECT_EQ(cache.Find(8, 5, &read_at), nullptr);
}

TEST(RowCacheTest, ANewReadReplacesTheOld) {
  RowCache cache(1, 10, 1);
  const float one = 1;
  const float two = 2;
  cache.Put(7, 5, &one);
  cache.Put(7, 6, &two);
  uint64_t read_at = 0;
  EXPECT_EQ(*cache.Find(7, 7, &read_at), 2.0f);
  EXPECT_EQ(read_at, 6u);
  EXPECT_EQ(cache.rows(), 1u);
}

TEST(RowCacheTest, TakesNoMoreThanItMayAndUsesPlacesAgain) {
  RowCache cache(1, 2, 1);
  const float value = 3;
  cache.Put(1, 0, &value);
  cache.Put(2, 1, &value);
  cache.Put(3, 1, &value);
  uint64_t read_at = 0;
  EXPECT_EQ(cache.rows(), 2u);
  EXPECT_EQ(cache.Find(3, 1, &read_at), nullptr);
  cache.Expire(2);  // row 1 is too old now
  EXPECT_EQ(cache.rows(), 1u);
  const float four = 4;
  cache.Put(3, 2, &four);
  EXPECT_EQ(*cache.Find(3, 2, &read_at), 4.0f);
  EXPECT_EQ(*cache.Find(2, 2, &read_at), 3.0f);
}

}  // namespace
}  // namespace weir
