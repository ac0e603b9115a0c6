// The end of a job: who hears of it, and what can no longer spoil it.
#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/chief/job_state.h"
#include "tests/server/chief/chief_world.h"
#include "tests/server/chief/progress_of.h"

namespace weir {
namespace {

using testing::HasSubstr;

// Every contribution of both workers is done and reported.
void DoEverything(ChiefWorld* world) {
  world->StartChief();
  for (int w = 0; w < 2; ++w) {
    world->Join(w);
    world->workers[w].contributions = 10;
    while (world->workers[w].next < 10) {
      world->DoContribution(w);
    }
  }
}

// Worker `w` ends because of its stop, and says so.
void Leave(ChiefWorld* world, int w) {
  ASSERT_TRUE(world->workers[w].stop.has_value()) << "worker " << w;
  EXPECT_TRUE(world->Beat(w).ok());
  world->chief().OnStreamLost(world->workers[w].stream);
  world->workers[w].stream = 0;
}

// The ps is killed, and its next process is not there yet.
void LosePs(ChiefWorld* world, int s) {
  ChiefWorld::Shard shard;
  shard.incarnation = 9;
  shard.down = true;
  world->shards[static_cast<size_t>(s)] = shard;
}

// The worker's process asks again, as after a heartbeat that broke.
void ComeAgain(ChiefWorld* world, int w) {
  ChiefWorld::Worker& worker = world->workers[w];
  worker.request.set_held_history(worker.grant->sender().history());
  worker.request.set_held_generation(worker.grant->sender().generation());
  world->Register(w);
}

TEST(JobStateEndTest, AWorkerBetweenTwoStreamsIsToldWhenItComesAgain) {
  ChiefWorld world(2, 2, SmallSpec());
  DoEverything(&world);
  EXPECT_TRUE(world.Beat(0).ok());
  EXPECT_TRUE(world.Beat(1).ok());
  world.chief().OnStreamLost(world.workers[1].stream);
  world.workers[1].stream = 0;
  world.Run(3);
  Leave(&world, 0);
  world.Run(3);
  EXPECT_FALSE(world.finished.has_value());
  ComeAgain(&world, 1);
  ASSERT_TRUE(world.workers[1].stop.has_value()) << world.workers[1].error;
  EXPECT_EQ(world.workers[1].stop->code(), 0u);
  world.Run(2);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
}

TEST(JobStateEndTest, AChiefRestartedAtTheEndWaitsForBothWorkers) {
  ChiefWorld world(2, 2, SmallSpec());
  DoEverything(&world);
  world.StartChief();  // before it wrote DONE
  world.Run(1);
  ComeAgain(&world, 0);
  ASSERT_TRUE(world.workers[0].grant.has_value());
  world.Run(3);  // committed, and DONE is there
  EXPECT_EQ(world.done, "ckpt-20");
  ComeAgain(&world, 1);
  ASSERT_TRUE(world.workers[1].stop.has_value()) << world.workers[1].error;
  EXPECT_TRUE(world.Beat(0).ok());
  Leave(&world, 0);
  world.Run(2);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
}

TEST(JobStateEndTest, WaitsForAWorkerThatNeverComesOnlyForAWhile) {
  ChiefWorld world(2, 2, SmallSpec());
  DoEverything(&world);
  EXPECT_TRUE(world.Beat(0).ok());
  world.chief().OnStreamLost(world.workers[1].stream);
  world.Run(3);
  Leave(&world, 0);
  world.Run(5);
  EXPECT_FALSE(world.finished.has_value());
  world.Run(6);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
}

TEST(JobStateEndTest, NobodyHearsOfTheEndBeforeDoneIsWritten) {
  ChiefWorld world(2, 2, SmallSpec());
  DoEverything(&world);
  world.done_error = absl::ResourceExhaustedError("no space left");
  EXPECT_TRUE(world.Beat(0).ok());
  EXPECT_TRUE(world.Beat(1).ok());
  world.Run(8);
  EXPECT_FALSE(world.workers[0].stop.has_value());
  EXPECT_TRUE(world.Logged("no space left"));
  world.done_error = absl::OkStatus();
  EXPECT_TRUE(world.Beat(0).ok());
  EXPECT_TRUE(world.Beat(1).ok());
  world.Run(2);
  EXPECT_EQ(world.done, "ckpt-20");
  Leave(&world, 0);
  Leave(&world, 1);
  world.Run(1);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
}

// While the chief waits for the evaluator the job is done already.
class WaitForEvaluatorTest : public testing::Test {
 protected:
  WaitForEvaluatorTest() : world_(2, 2, Spec()) {
    world_.options.evaluator_expected = true;
    DoEverything(&world_);
    Beat();
    world_.Run(3);
  }

  static JobSpec Spec() {
    JobSpec spec = SmallSpec();
    spec.mutable_evaluation()->set_wait_seconds(30);
    return spec;
  }

  void Beat() {
    EXPECT_TRUE(world_.Beat(0).ok());
    EXPECT_TRUE(world_.Beat(1).ok());
  }

  void ExpectAGoodEnd() {
    Leave(&world_, 0);
    Leave(&world_, 1);
    world_.Run(12);  // a lost ps may come back to hear of it
    ASSERT_TRUE(world_.finished.has_value());
    EXPECT_TRUE(world_.finished->ok()) << *world_.finished;
    EXPECT_EQ(world_.workers[0].stop->code(), 0u);
  }

  ChiefWorld world_;
};

TEST_F(WaitForEvaluatorTest, ALostPsIsNotNeeded) {
  EXPECT_EQ(world_.done, "ckpt-20");
  world_.shards[1].down = true;
  for (int i = 0; i < 15; ++i) {
    Beat();
    world_.Run(1);
  }
  EXPECT_FALSE(world_.workers[0].stop.has_value());
  world_.chief().end().OnEvaluated();
  world_.Run(0.1);
  ExpectAGoodEnd();
}

TEST_F(WaitForEvaluatorTest, AWorkersErrorIsNotTheJobs) {
  Progress progress = ProgressOf(*world_.workers[0].grant);
  progress.set_next_sequence(10);
  progress.set_error("a bug");
  progress.set_error_code(static_cast<uint32_t>(absl::StatusCode::kInternal));
  EXPECT_TRUE(
      world_.chief().OnProgress(world_.workers[0].stream, progress).ok());
  world_.Run(1);
  EXPECT_TRUE(world_.Logged("a bug; the job is done all the same"));
  world_.chief().end().OnEvaluated();
  world_.Run(0.1);
  ExpectAGoodEnd();
}

TEST_F(WaitForEvaluatorTest, ASignalEndsTheWaitAndTheJobWell) {
  world_.chief().RequestStop("SIGTERM");
  world_.Run(0.1);
  ExpectAGoodEnd();
}

TEST(JobStateEndTest, AFailedJobTellsLatecomersItsError) {
  ChiefWorld world(2, 2, SmallSpec());
  DoEverything(&world);
  EXPECT_TRUE(world.Beat(0).ok());
  world.shards[1] = {};
  world.shards[1].incarnation = 5;
  world.Run(1.2);
  ComeAgain(&world, 1);
  ASSERT_TRUE(world.workers[1].stop.has_value()) << world.workers[1].error;
  EXPECT_EQ(world.workers[1].stop->code(),
            static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(world.workers[1].stop->reason(), HasSubstr("ps 1"));
}

// All is done and told, and ps 1 is gone.
void EndWithoutPs1(ChiefWorld* world) {
  DoEverything(world);
  EXPECT_TRUE(world->Beat(0).ok());
  EXPECT_TRUE(world->Beat(1).ok());
  world->Run(3);
  EXPECT_EQ(world->done, "ckpt-20");
  LosePs(world, 1);
  Leave(world, 0);
  Leave(world, 1);
}

// A ps is started again while the job ends. Nobody but this chief can tell it
// that there is nothing left to wait for.
TEST(JobStateEndTest, APsThatComesBackEmptyIsToldOfTheEnd) {
  ChiefWorld world(2, 2, SmallSpec());
  EndWithoutPs1(&world);
  world.Run(3);
  EXPECT_TRUE(world.shards[0].shut_down);
  EXPECT_FALSE(world.finished.has_value());
  world.shards[1].down = false;
  world.Run(1);
  EXPECT_TRUE(world.shards[1].shut_down);
  EXPECT_EQ(world.shards[1].shutdown_code, absl::StatusCode::kOk);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
}

// Another chief removed DONE and trains on; the ps was started again for it.
TEST(JobStateEndTest, APsThatComesBackEmptyForAnotherChiefIsLeftAlone) {
  ChiefWorld world(2, 2, SmallSpec());
  EndWithoutPs1(&world);
  world.Run(3);
  EXPECT_FALSE(world.finished.has_value());
  world.done.clear();
  world.shards[1].down = false;
  world.Run(1);
  EXPECT_FALSE(world.shards[1].shut_down);
  EXPECT_TRUE(world.Logged("another chief goes on with the job"));
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
}

TEST(JobStateEndTest, APsThatStaysAwayHoldsTheEndUpForAWhileOnly) {
  ChiefWorld world(2, 2, SmallSpec());
  EndWithoutPs1(&world);
  world.Run(12);  // lost_after_seconds is 10
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
}

// The chief acknowledges a heartbeat by its number and counts it once.
TEST(JobStateEndTest, ReportsThatComeTwiceCountOnce) {
  JobSpec spec = SmallSpec();
  spec.mutable_train()->set_steps(5);
  spec.mutable_limits()->set_max_bad_contributions(1);
  ChiefWorld world(1, 1, spec);
  world.StartChief();
  world.Join(0);
  Progress progress = ProgressOf(*world.workers[0].grant);
  progress.set_message_number(1);
  progress.set_bytes_pushed(1000);
  progress.add_report()->set_bad(true);
  world.DoContribution(0);
  progress.set_next_sequence(1);
  for (int time = 0; time < 3; ++time) {
    EXPECT_TRUE(
        world.chief().OnProgress(world.workers[0].stream, progress).ok());
    uint64_t heard = 0;
    for (const Action& action : world.chief().TakeActions()) {
      if (const auto* send = std::get_if<SendCommand>(&action)) {
        heard = std::max(heard, send->command.heard());
      }
    }
    EXPECT_EQ(heard, 1u);
  }
  EXPECT_FALSE(world.workers[0].stop.has_value());
  // A second bad contribution is over the limit.
  world.DoContribution(0);
  progress.set_message_number(2);
  progress.set_next_sequence(2);
  EXPECT_TRUE(world.chief().OnProgress(world.workers[0].stream, progress).ok());
  world.Run(3);
  ASSERT_TRUE(world.workers[0].stop.has_value());
  EXPECT_EQ(world.workers[0].stop->code(),
            static_cast<uint32_t>(absl::StatusCode::kOutOfRange));
}

}  // namespace
}  // namespace weir
