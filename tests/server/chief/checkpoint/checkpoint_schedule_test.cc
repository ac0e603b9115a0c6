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
  // What the workers did in a second was too little.
  schedule.OnPassed();
  EXPECT_EQ(schedule.VersionAhead(10, 1000), 208u);
  EXPECT_EQ(schedule.VersionAhead(10, 200), 200u);
}

TEST(CheckpointScheduleTest, SyncForgetsMissesOnceTriesGoWell) {
  CheckpointSchedule schedule({.every_steps = 100, .sync = true}, 0, 0);
  schedule.Observe(10, kSecond);
  // As many as a long job on a busy machine meets.
  for (int i = 0; i < 100; ++i) {
    schedule.OnPassed();
  }
  EXPECT_GT(schedule.VersionAhead(0, 1'000'000'000), 1'000'000u);
  for (uint64_t i = 1; i <= 100; ++i) {
    schedule.OnTried(i * 100, kSecond);
  }
  EXPECT_LE(schedule.VersionAhead(10'000, 1'000'000'000), 10'020u);
}

}  // namespace
}  // namespace weir
