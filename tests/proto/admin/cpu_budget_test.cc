#include "proto/admin/cpu_budget.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace weir {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(CpuBudgetTest, GivesABurstAtOnceAndThenItsShare) {
  CpuBudget budget(0.05, 100 * kMs);
  EXPECT_EQ(budget.PauseNs(7 * kMs, 1000 * kMs),
            0);  // what was before counts not
  EXPECT_EQ(budget.PauseNs(107 * kMs, 1000 * kMs), 0);
  // 5 ms too much take 100 ms at a twentieth.
  EXPECT_EQ(budget.PauseNs(112 * kMs, 1000 * kMs), 100 * kMs);
  EXPECT_EQ(budget.PauseNs(112 * kMs, 1050 * kMs), 50 * kMs);
  EXPECT_EQ(budget.PauseNs(112 * kMs, 1100 * kMs), 0);
}

TEST(CpuBudgetTest, SavesNoMoreThanABurst) {
  CpuBudget budget(0.05, 100 * kMs);
  budget.PauseNs(0, 0);
  EXPECT_EQ(budget.PauseNs(0, 3'600'000 * kMs), 0);
  EXPECT_EQ(budget.PauseNs(101 * kMs, 3'600'000 * kMs), 20 * kMs);
}

// I1, whatever the rounds cost.
TEST(CpuBudgetTest, HoldsItsShareInTheLongRun) {
  CpuBudget budget(0.04, 100 * kMs);
  int64_t cpu = 0;
  int64_t now = 0;
  uint32_t draw = 1;
  budget.PauseNs(cpu, now);
  while (now < 600'000 * kMs) {
    draw = draw * 1664525 + 1013904223;
    const int64_t cost = draw % (20 * kMs);
    cpu += cost;
    now += cost;  // a flood: there is always something to do
    now += budget.PauseNs(cpu, now);
  }
  EXPECT_LE(cpu, now / 25 + 120 * kMs);
  EXPECT_GE(cpu, now / 25 - 20 * kMs);
}

}  // namespace
}  // namespace weir
