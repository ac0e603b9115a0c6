// Random inputs of the tests of the CPU loops, and comparisons with double.
#ifndef TESTS_WORKER_COMPUTE_CPU_VALUES_H_
#define TESTS_WORKER_COMPUTE_CPU_VALUES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/math/random.h"
#include "gtest/gtest.h"

namespace weir {

inline std::vector<float> Draw(uint64_t seed, int64_t count, float low = -1.0f,
                               float high = 1.0f) {
  RandomStream random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = random.NextFloat(low, high);
  }
  return values;
}

inline std::vector<double> Doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// Each element within `bound` of the largest expected one: sums of float32 that
// are carried in double are much better than that.
inline void ExpectNear(const std::vector<float>& actual,
                       const std::vector<double>& expected,
                       double bound = 1e-5) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 0.0;
  for (const double value : expected) {
    largest = std::max(largest, std::fabs(value));
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], bound * largest) << "at " << i;
  }
}

}  // namespace weir

#endif  // TESTS_WORKER_COMPUTE_CPU_VALUES_H_
