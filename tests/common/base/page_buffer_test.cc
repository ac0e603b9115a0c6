// Memory that goes back.
#include "common/base/page_buffer.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <utility>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(PageBufferTest, IsMovedAndIsEmptyAfterwards) {
  PageBuffer buffer(10000);
  ASSERT_NE(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size(), 10000U);
  EXPECT_EQ(buffer.data()[9999], 0);
  buffer.data()[9999] = 'w';
  PageBuffer moved = std::move(buffer);
  EXPECT_EQ(buffer.data(), nullptr);  // NOLINT
  EXPECT_EQ(buffer.size(), 0U);       // NOLINT
  EXPECT_EQ(moved.data()[9999], 'w');
  moved = PageBuffer();
  EXPECT_EQ(moved.data(), nullptr);
}

TEST(PageBufferTest, MoreThanThereIsThrows) {
  constexpr auto kBytes =
      static_cast<size_t>(std::numeric_limits<int64_t>::max());
  EXPECT_THROW(static_cast<void>(PageBuffer{kBytes}), std::bad_alloc);
}

}  // namespace
}  // namespace weir
