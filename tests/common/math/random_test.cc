#include "common/math/random.h"

#include <cmath>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::ElementsAre;

// kat_vectors of the Random123 distribution, philox4x32 with 10 rounds. Words
// are listed from the least significant.
TEST(PhiloxTest, MatchesTheKnownAnswersOfRandom123) {
  EXPECT_THAT(Philox(0, 0, 0),
              ElementsAre(0x6627E8D5u, 0xE169C58Du, 0xBC57AC4Cu, 0x9B00DBD8u));
  const uint64_t ones = ~uint64_t{0};
  EXPECT_THAT(Philox(ones, ones, ones),
              ElementsAre(0x408F276Du, 0x41C83B0Eu, 0xA20BC7C6u, 0x6D5451FDu));
  // ctr 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0.
  EXPECT_THAT(
      Philox(0x299F31D0A4093822u, 0x0370734413198A2Eu, 0x85A308D3243F6A88u),
      ElementsAre(0xD16CFE09u, 0x94FDCCEBu, 0x5001E420u, 0x24126EA1u));
}

TEST(RandomStreamTest, IsTheWordsOfItsKeyInOrder) {
  RandomStream stream(42);
  for (uint64_t counter = 0; counter < 3; ++counter) {
    for (const uint32_t word : Philox(42, 0, counter)) {
      EXPECT_EQ(stream.Next32(), word);
    }
  }
}

TEST(RandomStreamTest, FloatsAreInTheirRange) {
  EXPECT_EQ(UnitFloat(0), 0.0f);
  EXPECT_LT(UnitFloat(~0u), 1.0f);
  RandomStream stream(1);
  double sum = 0;
  for (int i = 0; i < 100000; ++i) {
    const float value = stream.NextFloat(-2.0f, 3.0f);
    ASSERT_GE(value, -2.0f);
    ASSERT_LT(value, 3.0f);
    sum += value;
  }
  // Five standard errors: 5 * (5 / sqrt(12)) / sqrt(100000).
  EXPECT_NEAR(sum / 100000, 0.5, 0.0229);
}

TEST(RandomStreamTest, BelowReachesEveryValueAndNoOther) {
  RandomStream stream(2);
  std::set<uint32_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const uint32_t value = stream.NextBelow(7);
    ASSERT_LT(value, 7u);
    seen.insert(value);
  }
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(stream.NextBelow(1), 0u);
}

TEST(RandomStreamTest, NormalsHaveMeanZeroVarianceOneAndBothTails) {
  RandomStream stream(3);
  const int n = 200000;
  double sum = 0;
  double squares = 0;
  int beyond_two = 0;
  for (int i = 0; i < n; ++i) {
    const double value = stream.NextNormal();
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
    beyond_two += std::abs(value) > 2 ? 1 : 0;
  }
  // Five standard errors each: sqrt(1/n), sqrt(2/n), sqrt(p(1-p)/n).
  EXPECT_NEAR(sum / n, 0.0, 0.0112);
  EXPECT_NEAR(squares / n, 1.0, 0.0158);
  EXPECT_NEAR(static_cast<double>(beyond_two) / n, 0.0455, 0.0024);
}

TEST(MixKeyTest, DependsOnEveryBitOfBoth) {
  const uint64_t base = MixKey(5, 9);
  std::set<uint64_t> seen = {base};
  for (int bit = 0; bit < 64; ++bit) {
    seen.insert(MixKey(5 ^ (uint64_t{1} << bit), 9));
    seen.insert(MixKey(5, 9 ^ (uint64_t{1} << bit)));
  }
  EXPECT_EQ(seen.size(), 129u);
}

}  // namespace
}  // namespace weir
