// JobState's checkpoints on a disk that is full or hangs.
#include <algorithm>
#include <string>

#include "gtest/gtest.h"
#include "server/chief/job_state.h"
#include "tests/server/chief/chief_world.h"

namespace weir {
namespace {

JobSpec EverySteps(uint64_t steps, uint64_t every, bool sync = false) {
  JobSpec spec = SmallSpec();
  spec.mutable_train()->set_steps(steps);
  spec.mutable_checkpoint()->set_every_steps(every);
  if (sync) {
    spec.mutable_update()->mutable_sync();
  }
  return spec;
}

// The disk is full for ten minutes, or fails in another way, at the end or at a
// stop; the shards are healthy.
void ExpectTriedUntilWritten(
    bool stop, bool sync, bool at_commit,
    const absl::Status& error =
        absl::ResourceExhaustedError("No space left on device")) {
  ChiefWorld world(2, 1, EverySteps(stop ? 400 : 5, 0, sync));
  (at_commit ? world.commit_error : world.write_error) = error;
  world.StartChief();
  world.Join(0);
  world.Work(4);
  if (stop) {
    world.chief().RequestStop("SIGINT");
  }
  world.Work(100);
  for (int i = 0; i < 600; ++i) {
    world.Beat(0).IgnoreError();
    world.Run(1);
  }
  ASSERT_FALSE(world.finished.has_value()) << *world.finished;
  EXPECT_FALSE(world.shards[0].shut_down);
  EXPECT_TRUE(world.Logged(std::string(error.message())));
  EXPECT_TRUE(world.Logged("safe in the memory of the ps"));
  EXPECT_TRUE(world.Logged("trying again in 1 s"));
  EXPECT_TRUE(world.Logged("trying again in 10 s"));
  const auto tries = std::count_if(
      world.log.begin(), world.log.end(), [](const std::string& line) {
        return line.find("trying again") != std::string::npos;
      });
  EXPECT_GT(tries, 40);
  EXPECT_LT(tries, 70);
  world.commit_error = world.write_error = absl::OkStatus();
  for (int i = 0; i < 60 && !world.finished.has_value(); ++i) {
    world.Beat(0).IgnoreError();
    world.Run(1);
  }
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(world.finished->code(),
            stop ? absl::StatusCode::kCancelled : absl::StatusCode::kOk)
      << *world.finished;
  EXPECT_EQ(world.disk.size(), 1u);
}

TEST(JobStateRetryTest, TheLastCheckpointIsTriedUntilItIsWritten) {
  for (const bool sync : {false, true}) {
    for (const bool at_commit : {false, true}) {
      SCOPED_TRACE(testing::Message() << "sync " << sync << at_commit);
      ExpectTriedUntilWritten(/*stop=*/false, sync, at_commit);
    }
  }
}

TEST(JobStateRetryTest, TheCheckpointOfAStopIsTriedUntilItIsWritten) {
  for (const bool at_commit : {false, true}) {
    SCOPED_TRACE(at_commit);
    ExpectTriedUntilWritten(/*stop=*/true, /*sync=*/false, at_commit);
  }
}

// The keys have ended, or a clock is wrong: somebody can mend both.
TEST(JobStateRetryTest, KeysThatAreRefusedDoNotEndTheTries) {
  for (const bool stop : {false, true}) {
    for (const bool at_commit : {false, true}) {
      SCOPED_TRACE(testing::Message() << "stop " << stop << at_commit);
      ExpectTriedUntilWritten(
          stop, /*sync=*/false, at_commit,
          absl::UnauthenticatedError("403 RequestTimeTooSkewed"));
    }
  }
}

TEST(JobStateRetryTest, ALostShardEndsTheTriesOfTheLastCheckpoint) {
  ChiefWorld world(2, 1, EverySteps(5, 0));
  world.write_error = absl::ResourceExhaustedError("disk full");
  world.StartChief();
  world.Join(0);
  world.Work(100);
  EXPECT_FALSE(world.finished.has_value());
  world.LoseShards();
  world.Run(30);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(world.finished->code(), absl::StatusCode::kFailedPrecondition);
}

// A disk that hangs: no call comes back.
TEST(JobStateRetryTest, ACheckpointThatTakesLongSaysWhatItWaitsFor) {
  ChiefWorld world(2, 1, EverySteps(5, 0));
  world.no_write = true;
  world.StartChief();
  world.Join(0);
  world.Work(100);
  world.Run(60);
  EXPECT_FALSE(world.finished.has_value());
  EXPECT_TRUE(world.Logged("the checkpoint of step 5 has taken"));
  EXPECT_TRUE(world.Logged("waits for the file of ps 0, 1"));
  world.no_write = false;
  world.Work();
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
}

}  // namespace
}  // namespace weir
