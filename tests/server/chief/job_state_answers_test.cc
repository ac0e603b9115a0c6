#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/chief/job_state.h"
#include "tests/server/chief/chief_world.h"

namespace weir {
namespace {

using testing::HasSubstr;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

TEST(JobStateTest, AShardThatComesBackEmptyEndsTheJob) {
  ChiefWorld world(2, 1, SmallSpec());
  world.StartChief();
  world.Join(0);
  world.Beat(0).IgnoreError();
  world.shards[1] = {};
  world.shards[1].incarnation = 5;
  world.Run(2);
  ASSERT_TRUE(world.workers[0].stop.has_value());
  EXPECT_EQ(world.workers[0].stop->code(),
            static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
  world.Work(5);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(world.finished->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(*world.finished), HasSubstr("ps 1 (host1:1)"));
  EXPECT_TRUE(world.shards[0].shut_down);
  EXPECT_EQ(world.shards[0].shutdown_code,
            absl::StatusCode::kFailedPrecondition);
}

// The chief gave way to another one: it ended alone.
void ExpectGaveWay(ChiefWorld* world) {
  ASSERT_TRUE(world->finished.has_value());
  EXPECT_EQ(world->finished->code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(*world->finished), HasSubstr("another chief"));
  for (const ChiefWorld::Shard& shard : world->shards) {
    EXPECT_FALSE(shard.shut_down);
  }
  for (auto& [w, worker] : world->workers) {
    EXPECT_FALSE(worker.stop.has_value()) << "worker " << w;
    if (worker.grant.has_value()) {
      EXPECT_TRUE(absl::IsUnavailable(worker.error)) << worker.error;
    }
    EXPECT_TRUE(absl::IsUnavailable(
        world->chief().OnRegister(worker.request).status()));
  }
  EXPECT_TRUE(world->chief().TakeActions().empty());
}

TEST(JobStateTest, AChiefWhoseGenerationsAreOldGivesWay) {
  ChiefWorld world(2, 2, SmallSpec());
  world.StartChief();
  world.Join(0);
  ASSERT_TRUE(world.Beat(0).ok());
  world.shards[1].generation[0] = 7;  // by another chief
  world.Join(1);
  world.Run(1);
  ExpectGaveWay(&world);
}

TEST(JobStateTest, AChiefWhoseHistoryIsGoneGivesWay) {
  ChiefWorld world(2, 2, SmallSpec());
  world.StartChief();
  world.Join(0);
  ASSERT_TRUE(world.Beat(0).ok());
  // Another chief is restoring the shards and has done the first one.
  world.shards[0].declaration.set_history(4711);
  world.Run(2);
  ExpectGaveWay(&world);
}

TEST(JobStateTest, AChiefWhoseCheckpointIsRefusedGivesWay) {
  ChiefWorld world(2, 1, SmallSpec());
  world.StartChief();
  world.Join(0);
  ASSERT_TRUE(world.Beat(0).ok());
  world.chief().OnWritten(1, "",
                          absl::PermissionDeniedError("another history"));
  world.Run(0.1);
  ExpectGaveWay(&world);
}

TEST(JobStateTest, APsThatDoesNotAnswerIsLostAfterLostAfter) {
  ChiefWorld world(2, 1, SmallSpec());
  world.StartChief();
  world.Join(0);
  world.shards[0].down = true;
  world.Run(8);
  EXPECT_FALSE(world.finished.has_value());
  world.shards[0].down = false;
  world.Run(8);
  world.shards[0].down = true;
  world.Run(13);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(world.finished->code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(*world.finished), HasSubstr("ps 0 (host0:1)"));
}

TEST(JobStateTest, ARestoreDoesNotReplaceWhatAnotherChiefRestored) {
  ChiefWorld world(2, 1, SmallSpec());
  world.options.spec.mutable_checkpoint()->set_every_steps(5);
  world.StartChief();
  world.Join(0);
  world.Work(20);
  ASSERT_FALSE(world.disk.empty());
  world.shards[1] = {};
  world.shards[1].incarnation = 5;
  world.workers.clear();
  world.StartChief(/*resume=*/true);
  // Its Hellos are answered, then another chief is faster.
  for (size_t s = 0; s < world.shards.size(); ++s) {
    world.AnswerNext(static_cast<int>(s));
  }
  for (ChiefWorld::Shard& shard : world.shards) {
    shard.state = ACTIVE;
    shard.declaration = world.shards[0].declaration;
    shard.declaration.set_history(4711);
  }
  world.Run(1);
  ExpectGaveWay(&world);
  EXPECT_EQ(world.shards[0].restores, 0);
}

}  // namespace
}  // namespace weir
