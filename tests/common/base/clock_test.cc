#include "common/base/clock.h"

#include <chrono>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(ClockTest, RealTimeNeverGoesBackAndIsOneObject) {
  Clock* const clock = Clock::Real();
  EXPECT_EQ(clock, Clock::Real());
  int64_t before = clock->NowNs();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = clock->NowNs();
    ASSERT_GE(now, before);
    before = now;
  }
  // Monotonic time moves at all, and the wall is past 2020-01-01.
  while (clock->NowNs() == before) {
  }
  EXPECT_GT(clock->WallNowNs(), int64_t{1'577'836'800} * 1'000'000'000);
}

TEST(ClockTest, FakeTimeMovesOnlyWhenTold) {
  FakeClock clock;
  const int64_t now = clock.NowNs();
  const int64_t wall = clock.WallNowNs();
  EXPECT_GT(now, 0);
  EXPECT_EQ(clock.NowNs(), now);
  clock.Advance(std::chrono::milliseconds(3));
  EXPECT_EQ(clock.NowNs() - now, 3'000'000);
  EXPECT_EQ(clock.WallNowNs() - wall, 3'000'000);
  clock.StepWall(-std::chrono::hours(1));
  EXPECT_EQ(clock.NowNs() - now, 3'000'000);
  EXPECT_EQ(clock.WallNowNs() - wall, 3'000'000 - int64_t{3'600'000'000'000});
}

}  // namespace
}  // namespace weir
