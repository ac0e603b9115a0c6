#include "client/cc/job/start_plan.h"

#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using Kind = StartPlan::Kind;

HelloReply Reply(ShardState state, uint64_t history, uint32_t shard,
                 const std::string& job = "ours") {
  HelloReply reply;
  reply.set_state(state);
  if (state != EMPTY) {
    reply.set_job(job);
    reply.set_history(history);
    reply.set_shard(shard);
    reply.set_shard_count(2);
  }
  return reply;
}

Kind KindOf(const HelloReply& a, const HelloReply& b) {
  return PlanStart("ours", {"ps 0", "ps 1"}, {a, b}).kind;
}

TEST(StartPlanTest, EveryPairOfStates) {
  const HelloReply empty = Reply(EMPTY, 0, 0);
  EXPECT_EQ(KindOf(empty, empty), Kind::kLoad);
  EXPECT_EQ(KindOf(Reply(LOADED, 1, 0), empty), Kind::kLoad);
  EXPECT_EQ(KindOf(Reply(LOADED, 1, 0), Reply(LOADED, 2, 1)), Kind::kLoad);
  EXPECT_EQ(KindOf(Reply(ACTIVE, 1, 0), Reply(ACTIVE, 1, 1)), Kind::kAdopt);
  EXPECT_EQ(KindOf(Reply(ACTIVE, 1, 0), Reply(LOADED, 1, 1)), Kind::kAdopt);
  EXPECT_EQ(KindOf(Reply(ACTIVE, 1, 0), Reply(LOADED, 2, 1)), Kind::kReplace);
  EXPECT_EQ(KindOf(Reply(ACTIVE, 1, 0), Reply(ACTIVE, 2, 1)), Kind::kReplace);
  EXPECT_EQ(KindOf(Reply(ACTIVE, 1, 0), empty), Kind::kReplace);
  EXPECT_EQ(KindOf(empty, Reply(ACTIVE, 1, 1)), Kind::kReplace);
  // Swapped addresses: the order of the ps changed.
  EXPECT_EQ(KindOf(Reply(ACTIVE, 1, 1), Reply(ACTIVE, 1, 0)), Kind::kReplace);
  EXPECT_EQ(KindOf(Reply(ACTIVE, 1, 0), Reply(LOADED, 1, 1, "theirs")),
            Kind::kRefuse);
}

TEST(StartPlanTest, AnotherOrderOfThePsLosesNothing) {
  const StartPlan swapped = PlanStart(
      "ours", {"ps 0", "ps 1"}, {Reply(ACTIVE, 1, 1), Reply(ACTIVE, 1, 0)});
  EXPECT_TRUE(absl::IsInvalidArgument(swapped.status)) << swapped.status;
  EXPECT_THAT(std::string(swapped.status.message()),
              testing::HasSubstr("ps 0 holds shard 1 of 2 while"));
}

TEST(StartPlanTest, NamesTheShard) {
  const StartPlan lost = PlanStart("ours", {"ps 0", "ps 1"},
                                   {Reply(ACTIVE, 1, 0), Reply(EMPTY, 0, 0)});
  EXPECT_TRUE(absl::IsFailedPrecondition(lost.status)) << lost.status;
  EXPECT_THAT(std::string(lost.status.message()),
              testing::HasSubstr("ps 1 was restarted"));
}

}  // namespace
}  // namespace weir
