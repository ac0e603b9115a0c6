#include "common/math/simd.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

struct AddBody {
  static WEIR_KERNEL int Run(int a, int b) { return a + b; }
};

TEST(SimdTest, RunsTheBodyOnEveryLevelOfThisProcessor) {
  for (int level = 0; level <= static_cast<int>(BestSimdLevel()); ++level) {
    SetSimdLevelForTest(static_cast<SimdLevel>(level));
    EXPECT_EQ(static_cast<int>(ActiveSimdLevel()), level);
    EXPECT_EQ(SimdDispatch<AddBody>(2, 3), 5);
  }
  SetSimdLevelForTest(BestSimdLevel());
}

}  // namespace
}  // namespace weir
