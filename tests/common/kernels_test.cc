#include "common/kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/random.h"
#include "common/simd.h"

namespace weir {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> RandomFloats(int count) {
  RandomStream random(7);
  std::vector<float> out;
  for (int i = 0; i < count; ++i) {
    out.push_back(random.NextNormal() *
                  std::exp2(random.NextFloat(-20.0f, 20.0f)));
  }
  return out;
}

// `values` at `shift` bytes past an aligned address.
struct Bytes {
  Bytes(const std::vector<float>& values, size_t shift)
      : raw(values.size() * 4 + 4), data(raw.data() + shift) {
    std::memcpy(data, values.data(), values.size() * 4);
  }
  std::vector<char> raw;
  char* data;
};

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

TEST(KernelsTest, FindsASingleBadElementAnywhere) {
  OnEveryLevel([] {
    for (const int count : {1, 3, 16, 33, 100}) {
      for (const float bad : {kInf, -kInf, kNan, -kNan}) {
        for (int i = 0; i < count; ++i) {
          std::vector<float> values(static_cast<size_t>(count), 3e38f);
          Bytes good(values, static_cast<size_t>(i % 4));
          EXPECT_TRUE(AllFinite(good.data, count));
          values[static_cast<size_t>(i)] = bad;
          Bytes bytes(values, static_cast<size_t>(i % 4));
          ASSERT_FALSE(AllFinite(bytes.data, count)) << count << " " << i;
        }
      }
    }
    EXPECT_TRUE(AllFinite(nullptr, 0));
  });
}

TEST(KernelsTest, AccumulatesUnfusedOnEveryLevel) {
  const int count = 103;
  const std::vector<float> x = RandomFloats(count);
  OnEveryLevel([&] {
    for (size_t shift = 0; shift < 4; ++shift) {
      const Bytes bytes(x, shift);
      std::vector<float> sum(x.size(), 99.0f);
      SetScaled(sum.data(), bytes.data, 0.3f, count);
      AddScaled(sum.data(), bytes.data, 0.7f, count);
      Divide(sum.data(), 3.0f, count);
      for (size_t i = 0; i < x.size(); ++i) {
        const volatile float first = 0.3f * x[i];
        const volatile float second = 0.7f * x[i];
        ASSERT_EQ(sum[i], (first + second) / 3.0f) << i;
      }
      std::vector<float> copy(x.size());
      CopyValues(copy.data(), bytes.data, count);
      EXPECT_EQ(copy, x);
    }
  });
}

TEST(KernelsTest, SumsSquaresTheSameOnEveryLevel) {
  for (const int count : {0, 1, 15, 16, 17, 1000}) {
    const std::vector<float> x = RandomFloats(count);
    double expected = 0;
    for (const float value : x) {
      expected += static_cast<double>(value) * static_cast<double>(value);
    }
    const Bytes bytes(x, 1);
    SetSimdLevelForTest(SimdLevel::kBaseline);
    const double first = SumOfSquares(bytes.data, count);
    // Any order of `count` additions of positive numbers.
    EXPECT_NEAR(first, expected, expected * 1e-15 * (count + 1));
    OnEveryLevel([&] { EXPECT_EQ(SumOfSquares(bytes.data, count), first); });
  }
}

std::vector<uint16_t> Encode(void (*encode)(const float*, char*, int64_t),
                             const std::vector<float>& values) {
  std::vector<char> bytes(values.size() * 2 + 1);
  encode(values.data(), bytes.data() + 1, static_cast<int64_t>(values.size()));
  std::vector<uint16_t> out(values.size());
  std::memcpy(out.data(), bytes.data() + 1, values.size() * 2);
  return out;
}

std::vector<float> DecodeAll(void (*decode)(const char*, float*, int64_t)) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<uint16_t>(i);
  }
  std::vector<char> bytes(65536 * 2 + 1);
  std::memcpy(bytes.data() + 1, halves.data(), 65536 * 2);
  std::vector<float> out(65536);
  decode(bytes.data() + 1, out.data(), 65536);
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
  void (*encode)(const float*, char*, int64_t);
  void (*decode)(const char*, float*, int64_t);
};

constexpr Format kFormats[] = {
    {"bf16", 8, 7, EncodeBf16, DecodeBf16},
    {"f16", 5, 10, EncodeF16, DecodeF16},
};

TEST(KernelsTest, DecodesEveryHalfByItsDefinition) {
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

TEST(KernelsTest, EncodesWhatItDecodedAndRoundsHalvesToEven) {
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
        // Between finite neighbours of one sign: the middle, and just beside.
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

TEST(KernelsTest, OverflowsToInfinityAndKeepsNan) {
  const float low_payload = std::bit_cast<float>(0x7f800001u);
  EXPECT_EQ(Encode(EncodeF16, {65519.0f, 65520.0f, -1e30f, kInf}),
            (std::vector<uint16_t>{0x7bff, 0x7c00, 0xfc00, 0x7c00}));
  EXPECT_EQ(Encode(EncodeBf16, {3.4e38f, -kInf, 3.38e38f}),
            (std::vector<uint16_t>{0x7f80, 0xff80, 0x7f7e}));
  for (const Format& format : kFormats) {
    const uint16_t bits = Encode(format.encode, {low_payload})[0];
    EXPECT_TRUE(std::isnan(
        Definition(bits, format.exponent_bits, format.mantissa_bits)));
  }
}

}  // namespace
}  // namespace weir
