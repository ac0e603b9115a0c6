// JobState's checkpoints, stops and resumes.
#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/wire/applied_work.h"
#include "server/chief/job_state.h"
#include "tests/server/chief/chief_world.h"

namespace weir {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

JobSpec EverySteps(uint64_t steps, uint64_t every, bool sync = false) {
  JobSpec spec = SmallSpec();
  spec.mutable_train()->set_steps(steps);
  spec.mutable_checkpoint()->set_every_steps(every);
  if (sync) {
    spec.mutable_update()->mutable_sync();
  }
  return spec;
}

TEST(JobStateCheckpointTest, AsyncHoldsFreezesReleases) {
  ChiefWorld world(2, 2, EverySteps(40, 10));
  world.StartChief();
  world.Join(0);
  world.Join(1);
  world.Work();
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
  // There is one for each period, and no more.
  EXPECT_EQ(world.disk.size(), 4u);
  EXPECT_EQ(world.disk.count("ckpt-40"), 1u);
  EXPECT_GE(world.holds, 2 * 2);
  for (const auto& [name, manifest] : world.disk) {
    const auto list = ContributionList::Create(AppliedIn(manifest), 40);
    ASSERT_TRUE(list.ok()) << list.status();
    EXPECT_EQ(static_cast<uint64_t>(list->applied_count()), manifest.step())
        << name;
  }
}

// A slow store takes long to cut train.jsonl at the start, and the directory of
// a checkpoint comes behind that.
TEST(JobStateCheckpointTest, NobodyIsHeldWhileTrainJsonlIsCut) {
  ChiefWorld world(2, 2, EverySteps(400, 10));
  world.no_cut = true;
  world.StartChief();
  world.Join(0);
  world.Join(1);
  world.Work(20);
  ASSERT_GT(world.chief().status().step(), 20u);
  EXPECT_EQ(world.holds, 0);
  world.chief().OnTrainLogCut();
  world.Work(20);
  EXPECT_GT(world.holds, 0);
  EXPECT_FALSE(world.disk.empty());
}

TEST(JobStateCheckpointTest, SyncAsksAheadForWholePeriods) {
  ChiefWorld world(2, 2, EverySteps(200, 50, true));
  world.StartChief();
  world.Join(0);
  world.Join(1);
  world.Work();
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
  EXPECT_EQ(world.disk.size(), 4u);
  for (const char* name : {"ckpt-50", "ckpt-100", "ckpt-150", "ckpt-200"}) {
    EXPECT_EQ(world.disk.count(name), 1u) << name;
  }
  EXPECT_EQ(world.disk["ckpt-50"].applied_range(1), 100u);
  EXPECT_EQ(world.holds, 0);
}

TEST(JobStateCheckpointTest, OneUnderWayAtTheEndIsNotTheLast) {
  ChiefWorld world(1, 1, EverySteps(12, 10));
  world.StartChief();
  world.Join(0);
  world.no_freeze = true;
  for (int i = 0; i < 11; ++i) {
    world.DoContribution(0);
  }
  world.Beat(0).IgnoreError();
  world.Run(0.1);
  world.Beat(0).IgnoreError();  // holds
  world.Run(0.2);
  world.DoContribution(0);
  world.Beat(0).IgnoreError();
  world.Run(0.2);
  world.no_freeze = false;
  world.Work();
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
  EXPECT_EQ(world.done, "ckpt-12");
}

TEST(JobStateCheckpointTest, BySeconds) {
  JobSpec spec = EverySteps(200, 0);
  spec.mutable_checkpoint()->set_every_seconds(2.0);
  ChiefWorld world(1, 1, spec);
  world.StartChief();
  world.Join(0);
  world.Work();
  EXPECT_GE(world.disk.size(), 3u);
}

TEST(JobStateCheckpointTest, ATornContributionWaitsForTheReplacement) {
  ChiefWorld world(2, 2, EverySteps(40, 10));
  world.StartChief();
  world.Join(0);
  world.Join(1);
  world.Beat(0).IgnoreError();
  world.Beat(1).IgnoreError();
  world.DoContribution(0, /*torn=*/true);
  world.chief().OnStreamLost(world.workers[0].stream);
  world.workers[0] = {};
  for (int i = 0; i < 15; ++i) {
    world.DoContribution(1);
    world.Beat(1).IgnoreError();
  }
  world.Run(7);
  EXPECT_TRUE(world.disk.empty());
  EXPECT_TRUE(world.Logged("the checkpoint waits for worker 0"));
  EXPECT_TRUE(world.Logged("inside contribution 0"));
  EXPECT_FALSE(world.workers[1].held);
  world.Beat(1).IgnoreError();
  world.Join(0);
  world.Work();
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
  EXPECT_GE(world.disk.size(), 2u);
}

TEST(JobStateCheckpointTest, WithoutAReplacementTheCheckpointIsGivenUp) {
  ChiefWorld world(2, 2, EverySteps(400, 10));
  world.StartChief();
  world.Join(0);
  world.Join(1);
  world.DoContribution(0, /*torn=*/true);
  for (int i = 0; i < 15; ++i) {
    world.DoContribution(1);
  }
  world.chief().OnStreamLost(world.workers[0].stream);
  for (int i = 0; i < 70; ++i) {
    world.Beat(1).IgnoreError();
    world.Run(1);
  }
  EXPECT_TRUE(world.Logged("gave up the checkpoint"));
  EXPECT_FALSE(world.workers[1].held);
  EXPECT_TRUE(world.disk.empty());
}

TEST(JobStateCheckpointTest, AFailedCheckpointDoesNotEndTheJob) {
  ChiefWorld world(1, 1, EverySteps(60, 10));
  world.write_error = absl::ResourceExhaustedError("disk full");
  world.StartChief();
  world.Join(0);
  world.Work(30);
  EXPECT_TRUE(world.Logged("disk full"));
  EXPECT_FALSE(world.finished.has_value());
  world.write_error = absl::OkStatus();
  world.Work();
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
  EXPECT_EQ(world.done, "ckpt-60");
}

TEST(JobStateCheckpointTest, AStopLeavesACheckpoint) {
  for (const bool sync : {false, true}) {
    ChiefWorld world(2, 2, EverySteps(400, 0, sync));
    world.StartChief();
    world.Join(0);
    world.Join(1);
    world.Work(20);
    world.chief().RequestStop("SIGINT");
    world.Work(200);
    ASSERT_TRUE(world.finished.has_value());
    EXPECT_EQ(world.finished->code(), absl::StatusCode::kCancelled);
    EXPECT_THAT(Message(*world.finished), HasSubstr("stopped after ckpt-"));
    EXPECT_EQ(world.disk.size(), 1u);
    EXPECT_EQ(world.done, "");
    EXPECT_TRUE(world.shards[0].shut_down);
  }
}

// The stop comes at every point of a regular checkpoint.
TEST(JobStateCheckpointTest, AStopBesideACheckpointLosesNothing) {
  for (int ticks = 0; ticks < 40; ++ticks) {
    for (const bool sync : {false, true}) {
      ChiefWorld world(1, 2, EverySteps(4000, 20, sync));
      world.StartChief();
      world.Join(0);
      world.Join(1);
      world.Work(ticks);
      world.chief().RequestStop("SIGINT");
      world.Work(400);
      ASSERT_TRUE(world.finished.has_value());
      ASSERT_FALSE(world.disk.empty());
      // In sync a checkpoint has whole steps only.
      const uint64_t done[] = {world.workers[0].next, world.workers[1].next};
      EXPECT_EQ(sync ? std::min(done[0], done[1]) : done[0] + done[1],
                world.disk.rbegin()->second.step())
          << "sync " << sync << ", ticks " << ticks;
    }
  }
}

TEST(JobStateCheckpointTest, AStopThatCannotFreezeEndsAnyhow) {
  ChiefWorld world(1, 1, EverySteps(400, 0, true));
  world.StartChief();
  world.Join(0);
  world.Work(20);
  world.no_freeze = true;
  world.chief().RequestStop("SIGINT");
  world.Run(90);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_THAT(Message(*world.finished), HasSubstr("without a checkpoint"));
}

// The ranges of every checkpoint and what follows it never overlap.
TEST(JobStateCheckpointTest, ResumesOnOtherShardAndWorkerCounts) {
  for (const bool sync : {false, true}) {
    JobSpec spec = EverySteps(60, 0, sync);
    if (sync) {
      spec.mutable_update()->mutable_sync()->set_contributions(2);
    }
    ChiefWorld first(2, 2, spec);
    first.StartChief();
    first.Join(0);
    first.Join(1);
    first.Work(20);
    first.chief().RequestStop("SIGINT");
    first.Work(400);
    ASSERT_EQ(first.disk.size(), 1u);
    const Manifest manifest = first.disk.begin()->second;

    ChiefWorld second(3, 5, spec);
    second.disk = first.disk;
    second.StartChief(/*resume=*/true);
    second.Run(0.2);
    for (int w = 0; w < 5; ++w) {
      second.Join(w);
    }
    ASSERT_TRUE(second.workers[4].grant.has_value()) << second.workers[4].error;
    const Grant& grant = *second.workers[4].grant;
    EXPECT_EQ(AppliedIn(grant), AppliedIn(manifest));
    EXPECT_EQ(grant.base_version(), manifest.step());
    EXPECT_NE(grant.sender().history(), manifest.declaration().history());
    EXPECT_EQ(second.chief().status().step(), manifest.step());
    EXPECT_EQ(second.shards[2].restores, 1);
    EXPECT_EQ(second.shards[2].declares, 0);
    second.Work();
    ASSERT_TRUE(second.finished.has_value());
    EXPECT_TRUE(second.finished->ok()) << *second.finished;
    EXPECT_EQ(second.done, "ckpt-60");
    const uint64_t left = (60 - manifest.step()) * (sync ? 2 : 1);
    uint64_t contributions = 0;
    for (const auto& [slot, next] : second.shards[0].next) {
      contributions += next;
    }
    EXPECT_EQ(contributions, left);
  }
}

TEST(JobStateCheckpointTest, ResumeAfterALostShardRestoresAllOfThem) {
  ChiefWorld world(2, 1, EverySteps(40, 10));
  world.StartChief();
  world.Join(0);
  world.Work(25);
  ASSERT_FALSE(world.disk.empty());
  world.shards[1] = {};
  world.shards[1].incarnation = 5;
  world.StartChief(/*resume=*/true);
  world.Run(1);
  world.Join(0);
  EXPECT_EQ(world.shards[0].restores, 1);
  EXPECT_EQ(world.shards[0].declares, 1);
  world.Work();
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
}

// A restored job has written nothing under its own history yet.
TEST(JobStateCheckpointTest, ARestartedChiefOfARestoredJobKnowsItsCheckpoint) {
  ChiefWorld world(2, 1, EverySteps(40, 0));
  world.StartChief();
  world.Join(0);
  world.Work(15);
  world.chief().RequestStop("SIGINT");
  world.Work(200);
  const std::string name = world.Newest();
  ASSERT_NE(name, "");
  world.LoseShards();
  world.StartChief(/*resume=*/true);
  world.Run(1);
  world.Join(0);
  EXPECT_EQ(world.shards[0].declaration.restored_from(), name);
  world.StartChief();
  world.Run(1);
  world.Join(0);
  EXPECT_EQ(world.chief().status().checkpoint(), name);
  world.chief().RequestStop("SIGTERM");
  for (int i = 0; i < 100 && !world.finished.has_value(); ++i) {
    world.Beat(0).IgnoreError();  // it holds, and does nothing more
    world.Run(0.2);
  }
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_THAT(Message(*world.finished), HasSubstr("stopped after " + name));
  EXPECT_EQ(world.disk.size(), 1u);
  EXPECT_EQ(world.directories.size(), 1u);
}

// Chiefs, workers and shards die, disks fail, jobs are stopped and resumed:
// the newest checkpoint never goes back and none is touched.
TEST(JobStateCheckpointTest, RandomFailuresNeverLoseACommittedCheckpoint) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    ChiefWorld world(2, 2, EverySteps(60, 9), seed);
    RandomStream random(seed * 91);
    world.StartChief();
    CheckpointId newest;
    for (int i = 0; i < 120; ++i) {
      const int w = static_cast<int>(random.NextBelow(2));
      switch (random.NextBelow(10)) {
        case 0:
        case 1:
          world.Join(w);
          break;
        case 2:
          if (random.NextBelow(6) == 0) {
            world.LoseShards();
            world.StartChief(/*resume=*/true);
          } else {
            world.StartChief();
          }
          break;
        case 3:
          if (random.NextBelow(4) == 0) {
            world.chief().RequestStop("SIGTERM");
          }
          break;
        case 4:
          world.commit_error = random.NextBelow(2) == 0
                                   ? absl::OkStatus()
                                   : absl::ResourceExhaustedError("full");
          world.manifest_stays = random.NextBelow(2) == 0;
          break;
        default:
          world.Work(static_cast<int>(random.NextBelow(4)));
          world.Run(0.2);
      }
      if (world.finished.has_value()) {
        world.LoseShards();
        world.StartChief(/*resume=*/true);
      }
      if (const std::string name = world.Newest(); !name.empty()) {
        const CheckpointId id = *ParseCheckpointName(name);
        EXPECT_FALSE(id < newest) << "seed " << seed << ": " << name;
        newest = id;
      }
      ASSERT_FALSE(world.Logged("removed before its successor"))
          << "seed " << seed;
    }
  }
}

TEST(JobStateCheckpointTest, ResumeWithoutCheckpointsOfATrainedJobIsRefused) {
  ChiefWorld world(1, 1, SmallSpec());
  TrainLine line;
  line.step = 1895;
  world.options.train_lines.push_back(line);
  world.StartChief(/*resume=*/true);
  world.Run(1);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(world.finished->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(*world.finished),
              AllOf(HasSubstr("'/disk' holds no checkpoint"),
                    HasSubstr("step 1895"), HasSubstr("remove train.jsonl")));
  EXPECT_EQ(world.shards[0].declares, 0);
}

// A ps was lost before the first checkpoint, and whoever starts tasks again
// always resumes.
TEST(JobStateCheckpointTest, ResumeOfAJobThatWasNeverSavedStartsAnew) {
  ChiefWorld world(1, 1, SmallSpec());
  TrainLine line;
  line.step = 1895;
  world.options.train_lines.push_back(line);
  world.options.never_saved = true;
  world.StartChief(/*resume=*/true);
  world.Join(0);
  world.Run(1);
  EXPECT_FALSE(world.finished.has_value());
  EXPECT_EQ(world.shards[0].declares, 1);
  EXPECT_TRUE(world.Logged("starting from the beginning"));
}

TEST(JobStateCheckpointTest, ResumeRefusesAnotherModelOrADamagedCheckpoint) {
  ChiefWorld world(1, 1, EverySteps(40, 10));
  world.StartChief();
  world.Join(0);
  world.Work(25);
  world.shards[0] = {};
  world.options.spec.mutable_train()->set_batch_size(11);
  world.StartChief(/*resume=*/true);
  world.Run(1);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_THAT(Message(*world.finished), HasSubstr("train.batch_size"));
  world.options.spec.mutable_train()->set_batch_size(10);
  world.damaged = true;
  world.StartChief(/*resume=*/true);
  world.Run(1);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(world.finished->code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(world.shards[0].restores, 0);
}

TEST(JobStateCheckpointTest, AFreshStartOverOldCheckpointsIsRefused) {
  ChiefWorld world(1, 1, SmallSpec());
  world.disk["ckpt-5"].set_step(5);
  world.StartChief();
  world.Run(1);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(world.finished->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(*world.finished), HasSubstr("--resume"));
}

TEST(JobStateCheckpointTest, WaitsForTheEvaluatorButNotForEver) {
  JobSpec spec = EverySteps(5, 0);
  spec.mutable_evaluation()->set_wait_seconds(30);
  ChiefWorld world(1, 1, spec);
  world.options.evaluator_expected = true;
  world.StartChief();
  world.Join(0);
  world.Work(100);
  EXPECT_EQ(world.done, "ckpt-5");
  EXPECT_FALSE(world.finished.has_value());
  world.chief().end().OnEvaluated();
  world.Work(100);
  ASSERT_TRUE(world.finished.has_value());

  ChiefWorld slow(1, 1, spec);
  slow.options.evaluator_expected = true;
  slow.StartChief();
  slow.Join(0);
  slow.Work(2000);
  ASSERT_TRUE(slow.finished.has_value());
  EXPECT_TRUE(slow.finished->ok());
  EXPECT_TRUE(slow.Logged("no line on ckpt-5"));
}

}  // namespace
}  // namespace weir
