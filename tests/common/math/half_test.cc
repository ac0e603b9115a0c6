#include "common/math/half.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "common/math/random.h"
#include "common/math/simd.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using Encoder = void (*)(const float* in, size_t count, char* out);
using Decoder = void (*)(const char* in, size_t count, float* out);

template <Encoder encode>
uint16_t EncodeOne(float value) {
  uint16_t bits = 0;
  encode(&value, 1, reinterpret_cast<char*>(&bits));
  return bits;
}

template <Decoder decode>
float DecodeOne(uint16_t bits) {
  float value = 0.0f;
  decode(reinterpret_cast<const char*>(&bits), 1, &value);
  return value;
}

constexpr auto FloatToBf16 = EncodeOne<FloatsToBf16>;
constexpr auto Bf16ToFloat = DecodeOne<Bf16ToFloats>;
constexpr auto FloatToF16 = EncodeOne<FloatsToF16>;
constexpr auto F16ToFloat = DecodeOne<F16ToFloats>;

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

// Runs `body` on every SIMD level of this processor.
template <class Body>
void OnEveryLevel(const Body& body) {
  for (int level = 0; level <= static_cast<int>(BestSimdLevel()); ++level) {
    SetSimdLevelForTest(static_cast<SimdLevel>(level));
    SCOPED_TRACE(level);
    body();
  }
  SetSimdLevelForTest(BestSimdLevel());
}

std::vector<uint16_t> Encode(void (*encode)(const float*, size_t, char*),
                             const std::vector<float>& values) {
  std::vector<char> bytes(values.size() * 2 + 1);
  encode(values.data(), values.size(), bytes.data() + 1);
  std::vector<uint16_t> out(values.size());
  std::memcpy(out.data(), bytes.data() + 1, values.size() * 2);
  return out;
}

std::vector<float> DecodeAll(void (*decode)(const char*, size_t, float*)) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<uint16_t>(i);
  }
  std::vector<char> bytes(65536 * 2 + 1);
  std::memcpy(bytes.data() + 1, halves.data(), size_t{65536} * 2);
  std::vector<float> out(65536);
  decode(bytes.data() + 1, 65536, out.data());
  return out;
}

// The value of a small float's bits, from its definition.
double Definition(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const uint32_t top = (1u << exponent_bits) - 1;
  const uint32_t exponent = (bits >> mantissa_bits) & top;
  const int bias = static_cast<int>(top / 2);
  const double sign = (bits >> 15) != 0 ? -1.0 : 1.0;
  if (exponent == top) {
    return mantissa != 0 ? std::nan("") : sign * HUGE_VAL;
  }
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  return exponent == 0 ? sign * std::ldexp(fraction, 1 - bias)
                       : sign * std::ldexp(1 + fraction,
                                           static_cast<int>(exponent) - bias);
}

struct Format {
  const char* name;
  int exponent_bits, mantissa_bits;
  void (*encode)(const float*, size_t, char*);
  void (*decode)(const char*, size_t, float*);
};

constexpr Format kFormats[] = {
    {"bf16", 8, 7, FloatsToBf16, Bf16ToFloats},
    {"f16", 5, 10, FloatsToF16, F16ToFloats},
};

TEST(HalfTest, DecodesEveryHalfByItsDefinition) {
  for (const Format& format : kFormats) {
    OnEveryLevel([&] {
      const std::vector<float> values = DecodeAll(format.decode);
      for (uint32_t i = 0; i < 65536; ++i) {
        const double expected =
            Definition(i, format.exponent_bits, format.mantissa_bits);
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(values[i])) << format.name << i;
        } else {
          ASSERT_EQ(static_cast<double>(values[i]), expected)
              << format.name << i;
        }
        ASSERT_EQ(std::signbit(values[i]), i >= 32768u);
      }
    });
  }
}

TEST(HalfTest, EncodesWhatItDecodedAndRoundsHalvesToEven) {
  for (const Format& format : kFormats) {
    OnEveryLevel([&] {
      const std::vector<float> exact = DecodeAll(format.decode);
      const std::vector<uint16_t> same = Encode(format.encode, exact);
      std::vector<float> middle;
      std::vector<uint16_t> even;
      for (uint32_t i = 0; i < 65536; ++i) {
        if (!std::isnan(exact[i])) {
          ASSERT_EQ(same[i], i) << format.name;
        } else {
          ASSERT_GT(same[i] & 0x7fff,
                    format.mantissa_bits == 7 ? 0x7f80 : 0x7c00);
        }
        // Between finite neighbours of one sign: the middle, and the floats
        // just beside it.
        if (i % 32768 + 1 < 32768 && std::isfinite(exact[i]) &&
            std::isfinite(exact[i + 1])) {
          const float half =
              static_cast<float>((static_cast<double>(exact[i]) +
                                  static_cast<double>(exact[i + 1])) /
                                 2);
          middle.push_back(half);
          even.push_back(static_cast<uint16_t>(i % 2 == 0 ? i : i + 1));
          middle.push_back(std::nextafter(half, exact[i]));
          even.push_back(static_cast<uint16_t>(i));
          middle.push_back(std::nextafter(half, exact[i + 1]));
          even.push_back(static_cast<uint16_t>(i + 1));
        }
      }
      EXPECT_EQ(Encode(format.encode, middle), even) << format.name;
    });
  }
}

TEST(HalfTest, OverflowsToInfinityAndKeepsNan) {
  const float low_payload = std::bit_cast<float>(0x7f800001u);
  EXPECT_EQ(Encode(FloatsToF16, {65519.0f, 65520.0f, -1e30f,
                                 std::numeric_limits<float>::infinity()}),
            (std::vector<uint16_t>{0x7bff, 0x7c00, 0xfc00, 0x7c00}));
  EXPECT_EQ(
      Encode(FloatsToBf16,
             {3.4e38f, -std::numeric_limits<float>::infinity(), 3.38e38f}),
      (std::vector<uint16_t>{0x7f80, 0xff80, 0x7f7e}));
  for (const Format& format : kFormats) {
    const uint16_t bits = Encode(format.encode, {low_payload})[0];
    EXPECT_TRUE(std::isnan(
        Definition(bits, format.exponent_bits, format.mantissa_bits)));
  }
}

}  // namespace
}  // namespace weir
