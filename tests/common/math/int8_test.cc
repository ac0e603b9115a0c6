#include "common/math/int8.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/math/random.h"
#include "common/math/simd.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

std::vector<float> RoundTrip(const std::vector<float>& values) {
  std::vector<char> bytes(Int8Bytes(values.size()) + 1);
  FloatsToInt8(values.data(), values.size(), bytes.data() + 1);
  std::vector<float> decoded(values.size());
  Int8ToFloats(bytes.data() + 1, values.size(), decoded.data());
  return decoded;
}

TEST(Int8Test, RoundsToTheNearestStepOfEachGroup) {
  RandomStream random(3);
  for (const size_t count : {1, 255, 256, 257, 1000, 4096}) {
    std::vector<float> values(count);
    for (float& value : values) {
      value = (random.NextFloat() - 0.5f) *
              std::exp2(static_cast<float>(random.NextBelow(40)) - 20.0f);
    }
    const std::vector<float> decoded = RoundTrip(values);
    for (size_t begin = 0; begin < count; begin += kInt8Group) {
      const size_t end = std::min(count, begin + kInt8Group);
      double largest = 0;
      for (size_t i = begin; i < end; ++i) {
        largest = std::max(largest, std::fabs(double{values[i]}));
      }
      const double step = largest / 127;
      for (size_t i = begin; i < end; ++i) {
        const double nearest = std::nearbyint(values[i] / step) * step;
        // The scale and the quotient are rounded to float, too.
        EXPECT_NEAR(decoded[i], values[i], step * 0.5001) << i;
        if (std::fabs(
                std::fabs(values[i] / step - std::floor(values[i] / step)) -
                0.5) > 1e-4) {
          EXPECT_NEAR(decoded[i], nearest, largest * 1e-6) << i;
        }
      }
    }
  }
}

TEST(Int8Test, TakesAByteAValueAndFourAGroup) {
  EXPECT_EQ(Int8Bytes(0), 0u);
  EXPECT_EQ(Int8Bytes(1), 5u);
  EXPECT_EQ(Int8Bytes(256), 260u);
  EXPECT_EQ(Int8Bytes(257), 265u);
}

TEST(Int8Test, NanAndInfinityMakeTheirGroupNan) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), INFINITY, -INFINITY}) {
    std::vector<float> values(512, 1.0f);
    values[300] = bad;
    const std::vector<float> decoded = RoundTrip(values);
    EXPECT_EQ(decoded[255], 1.0f);
    EXPECT_TRUE(std::isnan(decoded[256]));
    EXPECT_TRUE(std::isnan(decoded[300]));
  }
}

TEST(Int8Test, ZerosSmallestAndLargestStayFinite) {
  EXPECT_EQ(RoundTrip(std::vector<float>(300, 0.0f)),
            std::vector<float>(300, 0.0f));
  EXPECT_EQ(RoundTrip({1e-40f, -1e-31f}), std::vector<float>(2, 0.0f));
  const std::vector<float> large = RoundTrip({3e38f, -3e38f, 1e38f});
  EXPECT_NEAR(large[0] / 3e38f, 1.0f, 1e-6f);
  EXPECT_NEAR(large[1] / 3e38f, -1.0f, 1e-6f);
}

TEST(Int8Test, EveryLevelWritesTheSameBytes) {
  RandomStream random(5);
  std::vector<float> values(1027);
  for (float& value : values) {
    value = random.NextFloat() - 0.5f;
  }
  std::vector<std::vector<char>> bytes;
  for (int level = 0; level <= static_cast<int>(BestSimdLevel()); ++level) {
    SetSimdLevelForTest(static_cast<SimdLevel>(level));
    bytes.emplace_back(Int8Bytes(values.size()));
    FloatsToInt8(values.data(), values.size(), bytes.back().data());
    EXPECT_EQ(bytes.back(), bytes.front()) << level;
  }
  SetSimdLevelForTest(BestSimdLevel());
}

}  // namespace
}  // namespace weir
