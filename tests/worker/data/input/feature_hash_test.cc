// Compares the hash with values of an implementation in Python that was written
// from the header's description.
#include "worker/data/input/feature_hash.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(FeatureHashTest, NeverChanges) {
  EXPECT_EQ(FeatureHash(14, "68fd1e64"), 0x13aa494d0dbc2fu);
  EXPECT_EQ(FeatureHash(39, "68fd1e64"), 0xba40dfe47393d6a0u);
  EXPECT_EQ(FeatureHash(0, ""), 0x48218226ff3cd4bfu);
  EXPECT_EQ(FeatureHash(3, "a longer value\xff!!"), 0xc893111c96c94632u);
}

TEST(FeatureHashTest, ManyValuesOfManyFeaturesAreManyIds) {
  std::set<uint64_t> ids;
  for (uint64_t feature = 0; feature < 40; ++feature) {
    for (int i = 0; i < 5000; ++i) {
      ids.insert(FeatureHash(feature, std::to_string(i)));
    }
    ids.insert(FeatureHash(feature, std::string("\0", 1)));
    ids.insert(FeatureHash(feature, std::string("\0\0", 2)));
  }
  EXPECT_EQ(ids.size(), 40u * 5002);
}

TEST(FeatureHashTest, EveryBitOfAnIdIsAsOftenSetAsNot) {
  int set[64] = {};
  for (int i = 0; i < 10000; ++i) {
    const uint64_t id = FeatureHash(1, std::to_string(i));
    for (int bit = 0; bit < 64; ++bit) {
      set[bit] += static_cast<int>((id >> bit) & 1);
    }
  }
  for (const int count : set) {
    EXPECT_NEAR(count, 5000, 250);  // 5 standard deviations
  }
}

TEST(FeatureHashTest, BucketsAreFilledEvenly) {
  EXPECT_EQ(BucketOf(12345, 0), 12345u);
  int count[10] = {};
  for (int i = 0; i < 10000; ++i) {
    ++count[BucketOf(FeatureHash(1, std::to_string(i)), 10)];
  }
  for (const int c : count) {
    EXPECT_NEAR(c, 1000, 150);  // 5 standard deviations
  }
}

}  // namespace
}  // namespace weir
