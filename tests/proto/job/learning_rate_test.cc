// Compares with closed forms. tests/server/ps/optimizer/schedule_test.cc
// compares with goldens of PyTorch's schedulers.
#include "proto/job/learning_rate.h"

#include <cmath>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(LearningRateTest, WarmsUpLinearly) {
  Schedule schedule;
  schedule.set_learning_rate(0.5);
  schedule.set_warmup_steps(4);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 0), 0.125);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 3), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 400), 0.5);
}

TEST(LearningRateTest, Decays) {
  Schedule schedule;
  schedule.set_learning_rate(1.0);
  schedule.mutable_step()->set_every(10);
  schedule.mutable_step()->set_factor(0.5);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 9), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 20), 0.25);
  schedule.mutable_exponential()->set_every(10);
  schedule.mutable_exponential()->set_factor(0.5);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 5), std::sqrt(0.5));
  schedule.mutable_cosine()->set_steps(10);
  schedule.mutable_cosine()->set_final_fraction(0.2);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 0), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 5), 0.6);
  EXPECT_NEAR(LearningRate(schedule, 50), 0.2, 1e-15);
}

}  // namespace
}  // namespace weir
