#include "server/chief/checkpoint/checkpoint_schedule.h"

#include "gtest/gtest.h"

namespace weir {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(CheckpointScheduleTest, AsyncIsDueAfterEachPeriod) {
  CheckpointSchedule schedule({.every_steps = 10}, 0, 0);
  EXPECT_FALSE(schedule.Due(9, 0).has_value());
  EXPECT_EQ(schedule.Due(13, 0), 13u);
  schedule.OnTried(13, 0);
  EXPECT_FALSE(schedule.Due(19, 0).has_value());
  EXPECT_EQ(schedule.Due(20, 0), 20u);
}

TEST(CheckpointScheduleTest, BySecondsOnlyWithProgress) {
  CheckpointSchedule schedule({.every_seconds = 5.0}, 3, 0);
  EXPECT_FALSE(schedule.Due(3, 6 * kSecond).has_value());
  EXPECT_FALSE(schedule.Due(4, 4 * kSecond).has_value());
  EXPECT_EQ(schedule.Due(4, 5 * kSecond), 4u);
}

TEST(CheckpointScheduleTest, SyncAsksAheadAndFurtherAfterAMiss) {
  CheckpointSchedule schedule({.every_steps = 100, .sync = true}, 0, 0);
  EXPECT_FALSE(schedule.Due(50, 0).has_value());
  EXPECT_EQ(schedule.Due(90, 0), 100u);
  // It is too late for version 100.
  EXPECT_EQ(schedule.Due(99, 0), 200u);
  schedule.Observe(99, kSecond);  // 99 steps a second
  EXPECT_EQ(schedule.Due(10, kSecond), 100u);
  EXPECT_EQ(schedule.VersionAhead(10, 1000), 109u);
  for (int i = 0; i < 7; ++i) {
    schedule.OnPassed();
  }
  EXPECT_EQ(schedule.VersionAhead(10, 1000), 266u);
  EXPECT_EQ(schedule.VersionAhead(10, 200), 200u);
}

}  // namespace
}  // namespace weir
