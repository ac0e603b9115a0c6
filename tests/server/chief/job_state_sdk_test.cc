// JobState with jobs that programs of the SDK declare.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/chief/job_state.h"
#include "tests/server/chief/chief_world.h"
#include "tests/server/chief/progress_of.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

// A job without a JobSpec on two shards with two workers.
class JobStateBroughtTest : public testing::Test {
 protected:
  JobStateBroughtTest() : world_(2, 2, JobSpec()) {
    world_.options.sdk_job = true;
    world_.sdk_job = SmallDeclaration(2, 2);
  }

  void Sync() {
    world_.sdk_job.mutable_update()->mutable_sync()->set_contributions(2);
  }
  // Both workers have a grant.
  void Begin(bool resume = false) {
    world_.StartChief(resume);
    world_.Settle();
    // Worker 1 comes first and waits for the values of worker 0.
    world_.Register(1);
    world_.Join(0);
    world_.Join(1);
    ASSERT_TRUE(world_.workers[0].grant.has_value());
    ASSERT_TRUE(world_.workers[1].grant.has_value());
    EXPECT_TRUE(world_.Beat(0).ok());
    EXPECT_TRUE(world_.Beat(1).ok());
  }
  void Push(int w, int count) {
    for (int i = 0; i < count; ++i) {
      world_.DoContribution(w);
      EXPECT_TRUE(world_.Beat(w).ok());
    }
  }
  // All finish; then chief and ps are started again, and worker 1.
  void FinishAndComeBack(const char* checkpoint) {
    world_.Retire(0);
    world_.Retire(1);
    world_.Run(5);
    ASSERT_EQ(world_.done, checkpoint);
    LoseShards();
    world_.finished.reset();
    world_.StartChief(/*resume=*/true);
    world_.Settle();
    world_.Join(1);
    ASSERT_TRUE(world_.workers[1].grant.has_value());
    EXPECT_TRUE(world_.Beat(1).ok());
  }
  // Every shard is empty again.
  void LoseShards() {
    for (ChiefWorld::Shard& shard : world_.shards) {
      const uint64_t incarnation = shard.incarnation + 100;
      shard = ChiefWorld::Shard();
      shard.incarnation = incarnation;
    }
    world_.workers.clear();
  }

  ChiefWorld world_;
};

TEST_F(JobStateBroughtTest, DeclaresWhatTheFirstWorkerBrings) {
  Begin();
  for (const ChiefWorld::Shard& shard : world_.shards) {
    EXPECT_EQ(shard.declares, 1);
    EXPECT_TRUE(shard.assigned);
    EXPECT_EQ(shard.declaration.job(), "script");
    EXPECT_EQ(shard.declaration.variable(0).name(), "w");
    EXPECT_NE(shard.declaration.history(), 0u);
  }
  EXPECT_EQ(world_.workers[1].grant->pushes_before(), 0u);
  EXPECT_EQ(world_.chief().status().phase(), ChiefStatus::TRAINING);
  EXPECT_EQ(world_.chief().status().step_count(), 0u);  // unknown
}

TEST_F(JobStateBroughtTest, WaitsForTheValuesOfWorker0) {
  world_.StartChief();
  world_.Settle();
  world_.Join(1);
  EXPECT_FALSE(world_.workers[1].grant.has_value());
  EXPECT_EQ(world_.shards[0].declares, 1);
  EXPECT_EQ(world_.shards[0].state, LOADED);
  // A chief that is started in between declares again, and asks for the values
  // again.
  world_.Register(0);
  ASSERT_TRUE(world_.shards[0].assigned);
  world_.shards[0].assigned = false;
  world_.StartChief();
  world_.Settle();
  world_.Join(0);
  EXPECT_TRUE(world_.workers[0].grant.has_value());
  EXPECT_EQ(world_.shards[0].declares, 2);
  EXPECT_TRUE(world_.shards[0].assigned);
}

TEST_F(JobStateBroughtTest, RefusesAnotherModel) {
  Begin();
  world_.sdk_job.mutable_variable(0)->set_shape(0, 201);
  EXPECT_THAT(Message(world_.Join(1).error),
              HasSubstr("'w' is [200] on the server, [201] here; every worker "
                        "must declare the same"));
  EXPECT_EQ(world_.workers[1].error.code(), absl::StatusCode::kAlreadyExists);
  world_.sdk_job = SmallDeclaration(2, 2);
  Sync();
  EXPECT_THAT(Message(world_.Join(1).error),
              HasSubstr("the mode is async on the server, sync here"));
  world_.sdk_job = SmallDeclaration(2, 2);
  world_.sdk_job.mutable_group(0)->mutable_optimizer()->mutable_adam();
  EXPECT_THAT(Message(world_.Join(1).error),
              HasSubstr("the optimizer is sgd on the server, adam here"));
  world_.sdk_job = SmallDeclaration(2, 2);
  world_.sdk_job.set_job("other");
  EXPECT_THAT(Message(world_.Join(1).error),
              HasSubstr("declares job 'other', the chief runs 'script'"));
  world_.sdk_job = SmallDeclaration(2, 3);
  EXPECT_THAT(Message(world_.Join(1).error),
              HasSubstr("names 2 ps and 3 workers, the chief 2 and 2"));
  EXPECT_FALSE(world_.finished.has_value());
}

TEST_F(JobStateBroughtTest, RefusesAnEmptyDeclaration) {
  world_.StartChief();
  world_.Settle();
  world_.sdk_job.clear_variable();
  EXPECT_THAT(Message(world_.Join(0).error), HasSubstr("with 0 tensors"));
  world_.sdk_job = SmallDeclaration(2, 2);
  world_.sdk_job.mutable_update()->mutable_sync();
  EXPECT_THAT(Message(world_.Join(0).error),
              HasSubstr("one push of every worker, not 0 of 2"));
  EXPECT_FALSE(world_.finished.has_value());
}

TEST_F(JobStateBroughtTest, AJobFileAndAProgramDoNotMix) {
  world_.StartChief();
  world_.Settle();
  world_.options.sdk_job = false;  // of the worker's request alone
  EXPECT_THAT(Message(world_.Join(0).error),
              HasSubstr("the chief was started without --job"));

  ChiefWorld other(2, 2, SmallSpec());
  other.StartChief();
  other.Settle();
  other.options.sdk_job = true;
  other.sdk_job = SmallDeclaration(2, 2);
  EXPECT_THAT(Message(other.Join(0).error),
              HasSubstr("the chief was started with --job"));
}

TEST_F(JobStateBroughtTest, EndsWhenEveryWorkerHasFinished) {
  Begin();
  Push(0, 3);
  Push(1, 4);
  world_.Retire(0);
  EXPECT_FALSE(world_.finished.has_value());
  EXPECT_TRUE(world_.Logged("has finished"));
  EXPECT_FALSE(world_.Logged("is gone"));
  Push(1, 1);
  world_.Retire(1);
  world_.Run(5);
  ASSERT_TRUE(world_.finished.has_value());
  EXPECT_TRUE(world_.finished->ok()) << *world_.finished;
  EXPECT_EQ(world_.done, "ckpt-8");
  const Manifest& manifest = world_.disk.at("ckpt-8");
  EXPECT_THAT(manifest.pushes(), ElementsAre(3, 5));
  EXPECT_EQ(manifest.job_spec_text(), "");
  EXPECT_TRUE(world_.shards[1].shut_down);
  EXPECT_TRUE(world_.lines.empty());
}

TEST_F(JobStateBroughtTest, SyncGoesOnWithoutAFinishedWorker) {
  Sync();
  world_.options.spec.mutable_checkpoint()->set_every_steps(40);
  Begin();
  for (int step = 0; step < 10; ++step) {
    Push(0, 1);
    Push(1, 1);
  }
  world_.Run(0.5);
  EXPECT_EQ(world_.chief().status().step(), 10u);
  world_.Retire(0);
  for (int step = 10; step < 60; ++step) {
    Push(1, 1);
    world_.Run(0.1);
  }
  EXPECT_EQ(world_.chief().status().step(), 60u);
  EXPECT_EQ(world_.disk.count("ckpt-40"), 1u);
  world_.Retire(1);
  world_.Run(5);
  ASSERT_TRUE(world_.finished.has_value());
  EXPECT_TRUE(world_.finished->ok()) << *world_.finished;
  EXPECT_EQ(world_.done, "ckpt-60");
  EXPECT_THAT(world_.disk.at("ckpt-60").pushes(), ElementsAre(60, 60));
}

TEST_F(JobStateBroughtTest, ContinuesFromItsCheckpoint) {
  world_.options.spec.mutable_checkpoint()->set_every_steps(6);
  Begin();
  Push(0, 2);
  Push(1, 4);
  world_.workers[0].held = world_.workers[1].held = true;
  for (int i = 0; i < 20 && world_.disk.empty(); ++i) {
    EXPECT_TRUE(world_.Beat(0).ok());
    EXPECT_TRUE(world_.Beat(1).ok());
    world_.Run(0.1);
  }
  ASSERT_EQ(world_.disk.count("ckpt-6"), 1u);
  const uint64_t history = world_.shards[0].declaration.history();
  LoseShards();
  Begin(/*resume=*/true);
  EXPECT_EQ(world_.shards[0].restores, 1);
  EXPECT_EQ(world_.shards[0].declares, 0);
  EXPECT_FALSE(world_.shards[0].assigned);
  EXPECT_NE(world_.shards[0].declaration.history(), history);
  EXPECT_EQ(world_.workers[0].grant->pushes_before(), 2u);
  EXPECT_EQ(world_.workers[1].grant->pushes_before(), 4u);
  EXPECT_EQ(world_.workers[1].grant->next_sequence(), 0u);
  EXPECT_EQ(world_.chief().status().step(), 6u);
  Push(1, 1);
  world_.Retire(0);
  world_.Retire(1);
  world_.Run(5);
  ASSERT_TRUE(world_.finished.has_value());
  EXPECT_TRUE(world_.finished->ok()) << *world_.finished;
  EXPECT_THAT(world_.disk.at("ckpt-7").pushes(), ElementsAre(2, 5));
}

TEST_F(JobStateBroughtTest, AnotherNumberOfWorkersGoesOnInEqualShares) {
  Begin();
  Push(0, 3);
  Push(1, 5);
  world_.Retire(0);
  world_.Retire(1);
  world_.Run(5);
  ASSERT_EQ(world_.disk.count("ckpt-8"), 1u);

  ChiefWorld four(1, 4, JobSpec());
  four.options.sdk_job = true;
  four.sdk_job = SmallDeclaration(1, 4);
  four.disk = world_.disk;
  four.StartChief(/*resume=*/true);
  four.Settle();
  EXPECT_EQ(four.Join(3).grant->pushes_before(), 2u);
  EXPECT_EQ(four.chief().status().step(), 8u);
}

TEST_F(JobStateBroughtTest, RefusesToContinueAnotherModel) {
  Begin();
  Push(0, 1);
  world_.Retire(0);
  world_.Retire(1);
  world_.Run(5);
  ASSERT_EQ(world_.disk.count("ckpt-1"), 1u);
  LoseShards();
  world_.sdk_job.mutable_variable(0)->set_name("v");
  world_.StartChief(/*resume=*/true);
  world_.Settle();
  world_.Join(0);
  ASSERT_TRUE(world_.workers[0].stop.has_value());
  EXPECT_THAT(world_.workers[0].stop->reason(),
              HasSubstr("tensor 0 is 'w' on the server, 'v' here"));
  world_.Run(5);
  EXPECT_EQ(world_.finished->code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(JobStateBroughtTest, ACheckpointOfTheOtherKindIsRefused) {
  Begin();
  Push(0, 1);
  world_.Retire(0);
  world_.Retire(1);
  world_.Run(5);
  ASSERT_EQ(world_.disk.count("ckpt-1"), 1u);

  ChiefWorld with_job(2, 2, SmallSpec());
  with_job.disk = world_.disk;
  with_job.StartChief(/*resume=*/true);
  with_job.Run(5);
  EXPECT_THAT(Message(*with_job.finished),
              HasSubstr("was made by a program of the SDK"));

  LoseShards();
  world_.disk.at("ckpt-1").set_job_spec_text("name: \"small\"");
  world_.StartChief(/*resume=*/true);
  world_.Settle();
  world_.Join(0);
  world_.Run(5);
  EXPECT_THAT(Message(*world_.finished), HasSubstr("was made by a job file"));
}

TEST_F(JobStateBroughtTest, ARestartedChiefKnowsWhoHasFinished) {
  Begin();
  Push(0, 2);
  Push(1, 3);
  world_.Retire(0);
  world_.StartChief();
  world_.Settle();
  ChiefWorld::Worker& worker = world_.workers[1];
  worker.request.set_held_history(worker.grant->sender().history());
  worker.request.set_held_generation(worker.grant->sender().generation());
  const uint32_t generation = worker.grant->sender().generation();
  worker.grant.reset();
  for (int i = 0; i < 20 && !worker.grant.has_value(); ++i) {
    world_.Register(1);
    world_.Run(0.1);
  }
  ASSERT_TRUE(worker.grant.has_value()) << worker.error;
  EXPECT_EQ(worker.grant->sender().generation(), generation);
  EXPECT_EQ(world_.shards[0].declares, 1);
  EXPECT_TRUE(world_.Beat(1).ok());
  Push(1, 1);
  world_.Retire(1);
  world_.Run(15);  // 10 s of it for worker 0, which may come to hear of it
  ASSERT_TRUE(world_.finished.has_value());
  EXPECT_TRUE(world_.finished->ok()) << *world_.finished;
  EXPECT_THAT(world_.disk.at("ckpt-6").pushes(), ElementsAre(2, 4));
}

// Another chief may have written it, and a chief after this one needs it: the
// ps may end before this one has a checkpoint.
TEST_F(JobStateBroughtTest, AChiefThatHasNothingLeftToDoLeavesDone) {
  Begin();
  Push(0, 2);
  world_.no_write = true;
  world_.Retire(0);
  world_.Retire(1);
  world_.done = "ckpt-2";
  world_.StartChief(/*resume=*/true);
  world_.Run(1);
  EXPECT_TRUE(world_.Logged("training from push 2 to 2"));
  EXPECT_FALSE(world_.finished.has_value());
  EXPECT_EQ(world_.done, "ckpt-2");
}

TEST_F(JobStateBroughtTest, AFinishedWorkerMayComeBackWhileOthersWork) {
  Begin();
  Push(0, 2);
  world_.Retire(0);
  world_.Join(0);
  ASSERT_TRUE(world_.workers[0].grant.has_value());
  EXPECT_EQ(world_.workers[0].grant->next_sequence(), 2u);
  EXPECT_FALSE(world_.shards[0].retired[0]);
  EXPECT_TRUE(world_.Beat(0).ok());
  world_.Retire(1);
  world_.Run(5);
  EXPECT_FALSE(world_.finished.has_value());
  world_.Retire(0);
  world_.Run(5);
  ASSERT_TRUE(world_.finished.has_value());
  ASSERT_TRUE(world_.Join(1).stop.has_value());
  EXPECT_EQ(world_.workers[1].stop->code(), 0u);
}

// A program that was killed before it heard of the end goes on from the last
// checkpoint, where another one had ended well. The checkpoint may have been
// there before they had finished.
TEST_F(JobStateBroughtTest, ProgramsThatHadFinishedAreNotWaitedForWithoutEnd) {
  world_.options.spec.mutable_checkpoint()->set_every_steps(5);
  Begin();
  Push(0, 2);
  Push(1, 3);
  world_.workers[0].held = world_.workers[1].held = true;
  for (int i = 0; i < 20 && world_.disk.empty(); ++i) {
    EXPECT_TRUE(world_.Beat(0).ok());
    EXPECT_TRUE(world_.Beat(1).ok());
    world_.Run(0.1);
  }
  ASSERT_EQ(world_.Newest(), "ckpt-5");
  FinishAndComeBack("ckpt-5");
  Push(1, 1);
  for (int i = 0; i < 310 && !world_.shards[0].retired[0]; ++i) {
    world_.Run(1);
    EXPECT_TRUE(world_.Beat(1).ok());
  }
  EXPECT_TRUE(world_.shards[0].retired[0]);
  EXPECT_FALSE(world_.finished.has_value());
  world_.Retire(1);
  world_.Run(5);
  ASSERT_TRUE(world_.finished.has_value());
  EXPECT_TRUE(world_.finished->ok()) << *world_.finished;
  EXPECT_EQ(world_.done, "ckpt-6");
}

// Until somebody does more, it may be that nobody comes any more.
TEST_F(JobStateBroughtTest, AFinishedJobStaysDoneUntilAProgramPushes) {
  Begin();
  Push(0, 2);
  FinishAndComeBack("ckpt-2");
  world_.Run(1);
  EXPECT_EQ(world_.done, "ckpt-2");
  Push(1, 1);
  world_.Run(2);
  EXPECT_EQ(world_.done, "");
}

TEST_F(JobStateBroughtTest, AStopLeavesACheckpoint) {
  Begin();
  Push(0, 2);
  world_.chief().RequestStop("SIGTERM");
  for (int i = 0; i < 40 && !world_.finished.has_value(); ++i) {
    for (int w = 0; w < 2; ++w) {
      if (world_.workers[w].stop.has_value() && world_.workers[w].stream != 0) {
        world_.chief().OnStreamLost(world_.workers[w].stream);
        world_.workers[w].stream = 0;
      } else if (world_.workers[w].stream != 0) {
        EXPECT_TRUE(world_.Beat(w).ok());
      }
    }
    world_.Run(0.1);
  }
  ASSERT_TRUE(world_.finished.has_value());
  EXPECT_EQ(world_.finished->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(world_.disk.count("ckpt-2"), 1u);
  EXPECT_EQ(world_.done, "");
  EXPECT_THAT(world_.workers[1].stop->reason(), HasSubstr("SIGTERM"));
}

// Nobody else can finish what it left on a part of the blocks, and while it is
// held it cannot either.
TEST_F(JobStateBroughtTest, AStopInSyncLetsAProgramThatIsBackFinish) {
  Sync();
  Begin();
  Push(0, 2);
  Push(1, 3);
  world_.DoContribution(0, /*torn=*/true);
  world_.chief().OnStreamLost(world_.workers[0].stream);
  world_.workers[0] = {};
  world_.chief().RequestStop("SIGTERM");
  world_.Run(1);
  world_.Join(0);
  ASSERT_TRUE(world_.workers[0].grant.has_value());
  bool finished = false;
  for (int i = 0; i < 100 && !world_.finished.has_value(); ++i) {
    for (int w = 0; w < 2; ++w) {
      if (world_.workers[w].stop.has_value() && world_.workers[w].stream != 0) {
        world_.chief().OnStreamLost(world_.workers[w].stream);
        world_.workers[w].stream = 0;
      } else if (world_.workers[w].stream != 0) {
        EXPECT_TRUE(world_.Beat(w).ok());
      }
    }
    if (!world_.workers[0].held && i > 0 && !std::exchange(finished, true)) {
      world_.DoContribution(0);
    }
    world_.Run(0.1);
  }
  EXPECT_TRUE(finished);
  ASSERT_TRUE(world_.finished.has_value());
  EXPECT_EQ(world_.disk.count("ckpt-3"), 1u) << *world_.finished;
}

TEST_F(JobStateBroughtTest, OnlyAMissingWorkerMakesSilenceAnError) {
  Begin();
  Push(0, 1);
  for (int i = 0; i < 400; ++i) {  // an evaluation of 400 s
    EXPECT_TRUE(world_.Beat(0).ok());
    EXPECT_TRUE(world_.Beat(1).ok());
    world_.Run(1);
  }
  EXPECT_FALSE(world_.finished.has_value());
  world_.chief().OnStreamLost(world_.workers[1].stream);
  for (int i = 0; i < 10 && !world_.finished.has_value(); ++i) {
    world_.Beat(0).IgnoreError();
    world_.Run(1);
  }
  ASSERT_TRUE(world_.finished.has_value());
  EXPECT_THAT(Message(*world_.finished), HasSubstr("waiting for worker 1"));
}

// A heartbeat of worker `w` behind its pushes, with the loss that it reports.
absl::Status Report(ChiefWorld* world, int w, double loss, uint64_t number) {
  const ChiefWorld::Worker& worker = world->workers[w];
  Progress progress = ProgressOf(*worker.grant);
  progress.set_next_sequence(worker.next);
  progress.set_message_number(number);
  MetricSums* const sums = progress.mutable_metrics();
  sums->set_reports(1);
  sums->set_examples(10);
  MetricSum* const metric = sums->add_metric();
  metric->set_name("loss");
  metric->set_weighted_sum(10 * loss);
  metric->set_weight(10);
  return world->chief().OnProgress(worker.stream, progress);
}

TEST_F(JobStateBroughtTest, WhatProgramsReportIsTheCurve) {
  world_.options.train_lines = {{.step = 0, .seconds = 9.0, .examples = 5}};
  Begin();
  Push(0, 2);
  Push(1, 1);
  EXPECT_TRUE(Report(&world_, 0, 1.0, 1).ok());
  EXPECT_TRUE(Report(&world_, 1, 2.0, 1).ok());
  // Sent again on a new stream: it counts once.
  EXPECT_TRUE(Report(&world_, 0, 1.0, 1).ok());
  world_.Run(1.5);
  ASSERT_EQ(world_.lines.size(), 1u);
  EXPECT_THAT(world_.lines[0], HasSubstr(R"({"step":3,"loss":1.5,)"));
  EXPECT_THAT(world_.lines[0], HasSubstr(R"("examples":25,)"));
  EXPECT_EQ(world_.chief().status().loss(), 1.5);
  EXPECT_EQ(world_.chief().status().examples(), 25u);
  // A name that no JSON could hold is refused.
  Progress bad = ProgressOf(*world_.workers[0].grant);
  bad.mutable_metrics()->add_metric()->set_name("\"");
  bad.mutable_metrics()->mutable_metric(0)->set_weight(1);
  EXPECT_THAT(Message(world_.chief().OnProgress(world_.workers[0].stream, bad)),
              HasSubstr("needs a name"));
  // What comes with the last heartbeats is in the last line.
  Push(1, 1);
  EXPECT_TRUE(Report(&world_, 1, 4.0, 2).ok());
  world_.Retire(0);
  world_.Retire(1);
  world_.Run(5);
  ASSERT_TRUE(world_.finished.has_value());
  ASSERT_EQ(world_.lines.size(), 2u);
  EXPECT_THAT(world_.lines[1], HasSubstr(R"({"step":4,"loss":4,)"));
}

}  // namespace
}  // namespace weir
