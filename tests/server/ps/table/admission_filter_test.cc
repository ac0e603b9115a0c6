#include "server/ps/table/admission_filter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/job/row_hash.h"
#include "common/math/random.h"

namespace weir {
namespace {

TEST(AdmissionFilterTest, CountsTouches) {
  AdmissionFilter filter(1 << 16);
  EXPECT_EQ(filter.bytes(), 1 << 16);
  EXPECT_EQ(filter.Count(IndexHash(0)), 0u);
  for (uint32_t k = 1; k <= 300; ++k) {
    EXPECT_EQ(filter.Add(IndexHash(0)), std::min(k, 255u));
  }
  EXPECT_EQ(filter.Count(IndexHash(0)), 255u);
  EXPECT_EQ(filter.Count(IndexHash(1)), 0u);
}

TEST(AdmissionFilterTest, NeverCountsTooLittleWithinAPeriod) {
  AdmissionFilter filter(1 << 16);  // a period is 8192 touches
  RandomStream random(1);
  std::map<uint64_t, uint32_t> exact;
  for (int i = 0; i < 8000; ++i) {
    const uint64_t id = i % 2 == 0 ? random.NextBelow(100) : random.Next64();
    EXPECT_GE(filter.Add(IndexHash(id)), ++exact[id]);
  }
  for (const auto& [id, count] : exact) {
    EXPECT_GE(filter.Count(IndexHash(id)), count);
  }
}

TEST(AdmissionFilterTest, TakesFewIdsThatComeOnceForMore) {
  AdmissionFilter filter(1 << 16);
  int too_much = 0;
  constexpr int kIds = 100'000;  // 12 periods
  for (uint64_t id = 0; id < kIds; ++id) {
    too_much += filter.Add(IndexHash(id)) > 1;
  }
  EXPECT_LT(too_much, kIds / 100);  // I1
}

TEST(AdmissionFilterTest, ForgetsWhatComesSeldom) {
  AdmissionFilter filter(64);  // a period is 8 touches
  for (int i = 0; i < 1000; ++i) {
    // Id 7 comes once in two periods and never gets to 2.
    if (i % 17 == 0) {
      ASSERT_LT(filter.Add(IndexHash(7)), 2u);
    } else {
      filter.Add(IndexHash(1));
    }
  }
}

}  // namespace
}  // namespace weir
