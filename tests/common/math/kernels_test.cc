#include "common/math/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/math/random.h"
#include "common/math/simd.h"

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
    for (size_t i = 0; i < values.size(); ++i) {
      std::memcpy(data + 4 * i, &values[i], 4);
    }
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
    }
  });
}

}  // namespace
}  // namespace weir
