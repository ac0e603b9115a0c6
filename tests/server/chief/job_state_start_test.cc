#include "common/base/exit_code.h"
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

TEST(JobStateTest, WaitsForAPsAndSaysSo) {
  ChiefWorld world(2, 1, SmallSpec());
  world.shards[1].down = true;
  world.StartChief();
  world.Run(13);
  EXPECT_TRUE(world.Logged("waiting for ps 1 (host1:1), 5 s"));
  EXPECT_TRUE(world.Logged("waiting for ps 1 (host1:1), 10 s"));
  world.shards[1].down = false;
  world.Run(1);
  world.Join(0);
  EXPECT_TRUE(world.workers[0].grant.has_value());
}

TEST(JobStateTest, GivesUpOnAPsAfterThreeMinutes) {
  ChiefWorld world(2, 1, SmallSpec());
  world.shards[1].down = true;
  world.StartChief();
  world.Run(182);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(world.finished->code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(*world.finished), HasSubstr("ps 1 (host1:1)"));
}

TEST(JobStateTest, RefusesShardsOfAnotherJob) {
  ChiefWorld world(2, 1, SmallSpec());
  world.shards[1].state = ACTIVE;
  world.shards[1].declaration.set_job("other");
  world.StartChief();
  world.Run(1);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(world.finished->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(*world.finished), HasSubstr("'other'"));
  EXPECT_EQ(world.shards[0].declares, 0);
}

TEST(JobStateTest, ARestartedChiefTakesOverWithoutDeclaring) {
  ChiefWorld world(2, 2, SmallSpec());
  world.StartChief();
  world.Join(0);
  world.Join(1);
  for (int i = 0; i < 3; ++i) {
    world.DoContribution(0);
    world.DoContribution(1);
  }
  world.StartChief();
  world.Run(1);
  EXPECT_TRUE(world.Logged("took over"));
  // The process goes on under its grant. A new process gets a newer one.
  RegisterRequest again = world.workers[0].request;
  again.set_held_history(world.workers[0].grant->sender().history());
  again.set_held_generation(1);
  const auto reply = world.chief().OnRegister(again);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->grant().sender().generation(), 1u);
  EXPECT_EQ(reply->grant().next_sequence(), 3u);
  EXPECT_EQ(world.chief().status().step(), 6u);
  world.workers[1] = {};
  world.Join(1);
  EXPECT_EQ(world.workers[1].grant->sender().generation(), 2u);
  world.Work();
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
  EXPECT_EQ(world.shards[0].declares, 1);
  EXPECT_EQ(world.shards[0].next[0], 10u);
}

// A host or an operator ends it while it is about to take the shards over.
TEST(JobStateTest, AChiefThatIsToldToEndWhileItTakesOverSavesFirst) {
  for (const bool with_worker : {false, true}) {
    for (const bool ready : {false, true}) {
      JobSpec spec = SmallSpec();
      spec.mutable_train()->clear_steps();
      spec.mutable_train()->set_epochs(2);
      ChiefWorld world(2, 2, spec);
      world.StartChief();
      world.Join(0);
      world.Join(1);
      for (int i = 0; i < 3; ++i) {
        world.DoContribution(0);
        world.DoContribution(1);
      }
      world.done = "ckpt-99 of another chief";
      world.StartChief();
      if (ready) {
        world.Settle();
      } else {
        world.AnswerNext(0);  // its Hello
        world.AnswerNext(1);
      }
      ASSERT_TRUE(world.chief().start().adopted());
      world.chief().RequestStop("SIGTERM");
      if (with_worker) {
        RegisterRequest again = world.workers[0].request;
        again.set_held_history(world.workers[0].grant->sender().history());
        again.set_held_generation(1);
        if (!ready) {
          world.AnswerNext(0);  // its status
          world.AnswerNext(1);
        }
        const auto reply = world.chief().OnRegister(again);
        ASSERT_TRUE(reply.ok()) << reply.status();
        EXPECT_EQ(reply->grant().contribution_count(),
                  world.workers[0].grant->contribution_count());
      }
      world.Run(60);
      ASSERT_TRUE(world.finished.has_value()) << with_worker << ready;
      EXPECT_EQ(std::string(world.finished->message()),
                "SIGTERM: stopped after ckpt-6");
      EXPECT_EQ(world.disk.count("ckpt-6"), 1u);
      EXPECT_TRUE(world.shards[0].shut_down && world.shards[1].shut_down);
      EXPECT_EQ(world.done, "ckpt-99 of another chief");
    }
  }
}

// Until the ps have answered it cannot know that there is nothing to save.
TEST(JobStateTest, AChiefThatIsToldToEndAtOnceAsksThePsFirst) {
  for (const bool one_has_answered : {false, true}) {
    ChiefWorld world(2, 1, SmallSpec());
    world.StartChief();
    world.Join(0);
    for (int i = 0; i < 3; ++i) {
      world.DoContribution(0);
    }
    world.StartChief();
    if (one_has_answered) {
      world.AnswerNext(0);
    }
    world.chief().RequestStop("SIGTERM");
    world.Run(60);
    ASSERT_TRUE(world.finished.has_value()) << one_has_answered;
    EXPECT_TRUE(world.Logged("asking the ps what they hold"));
    EXPECT_EQ(Message(*world.finished), "SIGTERM: stopped after ckpt-3");
    EXPECT_EQ(world.disk.count("ckpt-3"), 1u);
  }
}

TEST(JobStateTest, AChiefThatIsToldToEndWaitsForNoPsThatHoldsNothing) {
  ChiefWorld world(2, 1, SmallSpec());
  world.StartChief();
  world.Join(0);
  world.shards[1] = {};
  world.StartChief(/*resume=*/true);
  world.AnswerNext(1);
  world.shards[0].down = true;
  world.chief().RequestStop("SIGTERM");
  world.Run(0.1);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(Message(*world.finished), "SIGTERM: stopped at the start");
}

TEST(JobStateTest, AChiefThatIsToldToEndWaitsForASilentPsForFiveSeconds) {
  ChiefWorld world(2, 1, SmallSpec());
  world.StartChief();
  world.Join(0);
  world.StartChief();
  world.shards[1].down = true;
  world.chief().RequestStop("SIGTERM");
  world.Run(4.5);
  EXPECT_FALSE(world.finished.has_value());
  world.Run(1);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(Message(*world.finished), "SIGTERM: stopped at the start");
}

TEST(JobStateTest, ARestartedChiefWithAnotherJobSpecNamesTheField) {
  JobSpec spec = SmallSpec();
  spec.mutable_checkpoint()->set_every_steps(5);
  ChiefWorld world(1, 1, spec);
  world.StartChief();
  world.Join(0);
  Manifest manifest;
  manifest.set_step(5);
  manifest.set_job_spec_text(spec.DebugString());
  world.disk["ckpt-5"] = manifest;
  world.options.spec.mutable_schedule()->set_learning_rate(0.5);
  world.StartChief();
  world.Run(1);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(world.finished->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(*world.finished), HasSubstr("schedule.learning_rate"));
}

TEST(JobStateTest, AShardLostBeforeTheStartNeedsResume) {
  ChiefWorld world(2, 1, SmallSpec());
  world.StartChief();
  world.Join(0);
  world.shards[1] = {};
  world.StartChief();
  world.Run(1);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(world.finished->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(*world.finished), HasSubstr("--resume"));
  world.StartChief(/*resume=*/true);
  world.Run(1);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_THAT(Message(*world.finished), HasSubstr("no checkpoint yet"));
}

// Whoever starts tasks again always resumes: a job that has lost a shard before
// its first checkpoint begins anew.
TEST(JobStateTest, WithoutAnyCheckpointALostShardEndsTheOthers) {
  ChiefWorld world(2, 1, SmallSpec());
  world.StartChief();
  world.Join(0);
  world.shards[1] = {};
  world.options.never_saved = true;
  world.StartChief(/*resume=*/true);
  world.Run(10);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(IsTransientExit(ExitCodeFor(*world.finished))) << *world.finished;
  EXPECT_THAT(Message(*world.finished), HasSubstr("begin anew"));
  EXPECT_TRUE(world.shards[0].shut_down);
  EXPECT_EQ(world.shards[0].shutdown_code, world.finished->code());
  EXPECT_FALSE(world.shards[1].shut_down);  // it is empty already
}

TEST(JobStateTest, APsThatKeepsNoCheckpointsEndsTheJobAtItsStart) {
  ChiefWorld world(2, 1, SmallSpec());
  world.shards[1].without_root = true;
  world.StartChief();
  world.Join(0);
  world.Run(1);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(world.finished->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(*world.finished), HasSubstr("ps 1"));
  EXPECT_THAT(Message(*world.finished), HasSubstr("--checkpoint_root"));
  EXPECT_EQ(world.shards[0].declares, 0);
}

TEST(JobStateTest, ADeadChiefsHalfDeclarationIsDoneAgain) {
  ChiefWorld world(2, 1, SmallSpec());
  world.shards[0].state = LOADED;
  world.shards[0].declaration.set_job("small");
  world.shards[0].declaration.set_history(9);
  world.StartChief();
  world.Join(0);
  ASSERT_TRUE(world.workers[0].grant.has_value());
  EXPECT_NE(world.shards[0].declaration.history(), 9u);
  EXPECT_EQ(world.shards[0].declaration.history(),
            world.shards[1].declaration.history());
}

}  // namespace
}  // namespace weir
