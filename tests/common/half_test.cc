#include "common/half.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/random.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

// The 16-bit pattern nearest to `value`, by looking at all finite ones; ties
// go to the even pattern.
uint16_t Nearest(double value, float (*decode)(uint16_t), uint16_t largest) {
  const bool negative = std::signbit(value);
  const double magnitude = std::fabs(value);
  uint16_t low = 0;
  uint16_t high = largest;
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (decode(middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - decode(low);
  const double above = decode(high) - magnitude;
  const bool up = above < below || (above == below && (low & 1) != 0);
  return static_cast<uint16_t>((up ? high : low) | (negative ? 0x8000 : 0));
}

// F16 by its definition: sign, 5 bits of exponent, 10 of fraction.
float F16ByDefinition(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double value = exponent == 0
                           ? std::ldexp(fraction, -24)
                           : std::ldexp(1024 + fraction, exponent - 25);
  return static_cast<float>((bits & 0x8000) != 0 ? -value : value);
}

TEST(HalfTest, EveryF16DecodesByDefinitionAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = F16ToFloat(half);
    if ((bits & 0x7c00) != 0x7c00) {
      EXPECT_EQ(value, F16ByDefinition(half)) << bits;
    } else {
      EXPECT_EQ(std::isnan(value), (bits & 0x3ff) != 0) << bits;
      EXPECT_EQ(std::isinf(value), (bits & 0x3ff) == 0) << bits;
    }
    if (!std::isnan(value)) {
      EXPECT_EQ(FloatToF16(value), half) << bits;
    }
  }
}

TEST(HalfTest, RoundsToTheNearest) {
  RandomStream random(7);
  for (int i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(random.Next32());
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F16ToFloat(FloatToF16(value))));
      EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(value))));
      continue;
    }
    if (std::fabs(value) < 3.3895314e38f) {
      ASSERT_EQ(FloatToBf16(value), Nearest(value, Bf16ToFloat, 0x7f7f))
          << value;
    }
    const float small = std::ldexp(value / std::ldexp(1.0f, std::ilogb(value)),
                                   static_cast<int>(random.NextBelow(42)) - 26);
    if (std::isfinite(small) && std::fabs(small) < 65504.0f) {
      ASSERT_EQ(FloatToF16(small), Nearest(small, F16ByDefinition, 0x7bff))
          << small;
    }
  }
}

TEST(HalfTest, TiesGoToEvenAndTheLargestOverflow) {
  EXPECT_EQ(FloatToF16(1.0f + 0x1p-11f), 0x3c00);
  EXPECT_EQ(FloatToF16(1.0f + 3 * 0x1p-11f), 0x3c02);
  EXPECT_EQ(FloatToF16(0x1p-25f), 0);
  EXPECT_EQ(FloatToF16(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToF16(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToF16(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(FloatToBf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(FloatToBf16(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::max()), 0x7f80);
}

TEST(HalfTest, ArraysAtOddAddressesAgreeWithSingleValues) {
  RandomStream random(9);
  std::vector<float> in(1000);
  for (float& value : in) {
    value = random.NextFloat(-3.0f, 3.0f);
  }
  std::vector<char> bytes(2 * in.size() + 1);
  std::vector<float> out(in.size());
  FloatsToBf16(in.data(), in.size(), bytes.data() + 1);
  Bf16ToFloats(bytes.data() + 1, in.size(), out.data());
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(out[i], Bf16ToFloat(FloatToBf16(in[i])));
  }
  FloatsToF16(in.data(), in.size(), bytes.data() + 1);
  F16ToFloats(bytes.data() + 1, in.size(), out.data());
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(out[i], F16ToFloat(FloatToF16(in[i])));
  }
}

}  // namespace
}  // namespace weir
