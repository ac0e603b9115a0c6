#include "proto/wire/grpc_deadline.h"

#include <gtest/gtest.h>

#include <chrono>

namespace weir {
namespace {

TEST(GrpcDeadlineTest, IsOnTheMonotonicClock) {
  const gpr_timespec before = gpr_now(GPR_CLOCK_MONOTONIC);
  const gpr_timespec deadline = DeadlineAfter(std::chrono::milliseconds(2500));
  const gpr_timespec after = gpr_now(GPR_CLOCK_MONOTONIC);
  EXPECT_EQ(deadline.clock_type, GPR_CLOCK_MONOTONIC);
  EXPECT_GE(gpr_time_to_millis(gpr_time_sub(deadline, before)), 2500);
  EXPECT_LE(gpr_time_to_millis(gpr_time_sub(deadline, after)), 2500);
}

}  // namespace
}  // namespace weir
