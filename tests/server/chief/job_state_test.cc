#include "server/chief/job_state.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/chief/chief_world.h"
#include "tests/server/chief/progress_of.h"

namespace weir {
namespace {

using testing::HasSubstr;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

JobSpec SyncSpec(uint64_t steps) {
  JobSpec spec = SmallSpec();
  spec.mutable_update()->mutable_sync();
  spec.mutable_train()->set_steps(steps);
  return spec;
}

TEST(JobStateTest, TrainsAsyncToItsEndAndLeavesACheckpoint) {
  ChiefWorld world(2, 2, SmallSpec());
  world.StartChief();
  world.Settle();
  world.Join(0);
  world.Join(1);
  world.Work();
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
  EXPECT_EQ(world.done, "ckpt-20");
  const Manifest& manifest = world.disk.at("ckpt-20");
  EXPECT_EQ(manifest.applied_range_size(), 2);
  EXPECT_EQ(manifest.applied_range(0), 0u);
  EXPECT_EQ(manifest.applied_range(1), 20u);
  EXPECT_EQ(manifest.file_size(), 2);
  for (const ChiefWorld::Shard& shard : world.shards) {
    EXPECT_EQ(shard.declares, 1);
    EXPECT_TRUE(shard.shut_down);
  }
  EXPECT_EQ(world.workers[0].stop->code(), 0u);
  EXPECT_EQ(world.chief().status().phase(), ChiefStatus::DONE);
}

TEST(JobStateTest, TrainsSyncInSteps) {
  ChiefWorld world(3, 2, SyncSpec(7));
  world.StartChief();
  world.Join(0);
  world.Join(1);
  EXPECT_EQ(world.workers[0].grant->contributions_per_step(), 2u);
  EXPECT_EQ(world.workers[0].grant->contribution_count(), 14u);
  world.Work();
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
  EXPECT_EQ(world.done, "ckpt-7");
  EXPECT_EQ(world.disk.at("ckpt-7").applied_range(1), 14u);
}

TEST(JobStateTest, SyncStepsNeedNotDivideAmongTheWorkers) {
  JobSpec spec = SyncSpec(5);
  spec.mutable_update()->mutable_sync()->set_contributions(3);
  ChiefWorld world(1, 2, spec);
  world.StartChief();
  world.Join(0);
  world.Join(1);
  world.Work();
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_TRUE(world.finished->ok()) << *world.finished;
  EXPECT_EQ(world.shards[0].next[0], 10u);
  EXPECT_EQ(world.shards[0].next[1], 5u);
}

TEST(JobStateTest, RefusesAWorkerThatDiffersAndNamesTheField) {
  ChiefWorld world(1, 4, SmallSpec());
  world.StartChief();
  world.Join(0);
  const auto refused = [&](int w, auto change) {
    world.workers[w] = {};
    world.workers[w].process = 1000 + w;
    world.Register(w);  // fills the request
    RegisterRequest request = world.workers[w].request;
    request.set_process(2000);
    change(&request);
    const absl::Status status = world.chief().OnRegister(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return Message(status);
  };
  EXPECT_THAT(
      refused(1,
              [](RegisterRequest* r) {
                r->mutable_job_spec()->mutable_train()->set_batch_size(7);
              }),
      HasSubstr("train.batch_size"));
  EXPECT_THAT(refused(1, [](RegisterRequest* r) { r->set_sample_count(99); }),
              HasSubstr("99 samples"));
  EXPECT_THAT(
      refused(1, [](RegisterRequest* r) { r->set_cluster_fingerprint(5); }),
      HasSubstr("lists other ps"));
  EXPECT_THAT(refused(1,
                      [](RegisterRequest* r) {
                        r->mutable_variable(0)->set_shape(0, 201);
                      }),
              HasSubstr("variable 0 'w'"));
  EXPECT_THAT(refused(1, [](RegisterRequest* r) { r->set_rank(4); }),
              HasSubstr("4 workers"));
}

TEST(JobStateTest, ANewerProcessTakesTheSlot) {
  ChiefWorld world(2, 2, SmallSpec());
  world.StartChief();
  world.Join(0);
  world.Beat(0).IgnoreError();
  const ChiefWorld::Worker old = world.workers[0];
  world.Join(0);
  EXPECT_EQ(world.workers[0].grant->sender().generation(), 2u);
  EXPECT_EQ(world.shards[1].generation[0], 2u);
  EXPECT_EQ(world.shards[1].process[0], world.workers[0].process);
  // The old process is told which one replaced it, and stays out.
  const Progress late = ProgressOf(*old.grant);
  const absl::Status status = world.chief().OnProgress(old.stream, late);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(status), HasSubstr(world.workers[0].request.host()));
  EXPECT_EQ(world.chief().OnRegister(old.request).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(JobStateTest, AReplacementGoesOnFromTheSmallestMark) {
  ChiefWorld world(2, 1, SmallSpec());
  world.StartChief();
  world.Join(0);
  world.DoContribution(0);
  world.DoContribution(0);
  world.DoContribution(0, /*torn=*/true);
  world.Join(0);
  EXPECT_EQ(world.workers[0].grant->next_sequence(), 2u);
}

TEST(JobStateTest, AReplacedProcessStaysReplacedWhenTheChiefIsRestarted) {
  ChiefWorld world(2, 1, SmallSpec());
  world.StartChief();
  RegisterRequest old = world.Join(0).request;
  old.set_held_history(world.workers[0].grant->sender().history());
  old.set_held_generation(world.workers[0].grant->sender().generation());
  world.Join(0);
  RegisterRequest newer = world.workers[0].request;
  newer.set_held_history(old.held_history());
  newer.set_held_generation(2);
  world.StartChief();
  world.Run(1);
  // The old process wakes up, and comes first.
  for (int time = 0; time < 2; ++time) {
    EXPECT_EQ(world.chief().OnRegister(old).status().code(),
              absl::StatusCode::kPermissionDenied);
  }
  const auto reply = world.chief().OnRegister(newer);
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_TRUE(reply->has_grant());
  EXPECT_EQ(reply->grant().sender().generation(), 2u);
  EXPECT_FALSE(world.finished.has_value());
}

// The link is slow: one contribution takes longer than the chief waits for
// progress.
TEST(JobStateTest, AContributionWhoseBytesMoveIsNoStandstill) {
  ChiefWorld world(1, 1, SmallSpec());
  world.StartChief();
  world.Join(0);
  for (int i = 0; i < 1000; ++i) {
    world.workers[0].bytes_moved += 100;
    world.Beat(0).IgnoreError();
    world.Run(1);
  }
  ASSERT_FALSE(world.finished.has_value());
  for (int i = 0; i < 320; ++i) {
    world.Beat(0).IgnoreError();
    world.Run(1);
  }
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_THAT(Message(*world.finished), HasSubstr("no progress for 300 s"));
}

// A contribution that is deferred until another worker's comes is sent again
// and again, and a worker that starts again pulls again.
TEST(JobStateTest, BytesAreNoProgressWhileAWorkerIsAwayOrWhenTheyComeAgain) {
  for (const bool away : {true, false}) {
    ChiefWorld world(1, 2, SmallSpec());
    world.StartChief();
    world.Join(0);
    world.Join(1);
    if (away) {
      world.chief().OnStreamLost(world.workers[1].stream);
    }
    for (int i = 0; i < 320 && !world.finished.has_value(); ++i) {
      world.workers[0].bytes_moved =
          away ? static_cast<uint64_t>(i) * 100 : static_cast<uint64_t>(i % 10);
      world.Beat(0).IgnoreError();
      if (!away) {
        world.Beat(1).IgnoreError();
      }
      world.Run(1);
    }
    EXPECT_TRUE(world.finished.has_value()) << away;
  }
}

TEST(JobStateTest, LogsAndGivesUpWhenWorkersStayAway) {
  ChiefWorld world(1, 2, SmallSpec());
  world.StartChief();
  world.Join(0);
  world.Beat(0).IgnoreError();
  world.chief().OnStreamLost(world.workers[0].stream);
  world.Run(65);
  EXPECT_TRUE(world.Logged("waiting for worker 1, 60 s"));
  EXPECT_TRUE(world.Logged("waiting for worker 0 (node"));
  world.Run(260);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(world.finished->code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(*world.finished), HasSubstr("no progress for 300 s"));
}

TEST(JobStateTest, SilentWorkersAreDropped) {
  ChiefWorld world(1, 1, SmallSpec());
  world.StartChief();
  world.Join(0);
  world.Beat(0).IgnoreError();
  world.Run(11);
  EXPECT_EQ(world.workers[0].stream, 0u);
  EXPECT_EQ(world.workers[0].error.code(), absl::StatusCode::kDeadlineExceeded);
}

// A worker whose stream broke, or whose chief was restarted, sends reports
// again that count already.
TEST(JobStateTest, AContributionThatIsReportedAgainIsCountedOnce) {
  JobSpec spec = SmallSpec();
  spec.mutable_train()->set_log_every_steps(1);
  ChiefWorld world(1, 1, spec);
  world.StartChief();
  world.Join(0);
  Progress progress = ProgressOf(*world.workers[0].grant);
  for (int i = 0; i < 5; ++i) {
    world.DoContribution(0);
    progress.add_report()->set_weight(1.0f);
  }
  progress.set_next_sequence(5);
  for (int time = 0; time < 2; ++time) {
    EXPECT_TRUE(
        world.chief().OnProgress(world.workers[0].stream, progress).ok());
    world.Run(1);
    EXPECT_EQ(world.lines.size(), 5u);
  }
  world.DoContribution(0);
  progress.set_next_sequence(6);  // the newest of the five is new
  EXPECT_TRUE(world.chief().OnProgress(world.workers[0].stream, progress).ok());
  world.Run(1);
  EXPECT_EQ(world.lines.size(), 6u);
}

TEST(JobStateTest, AReportOfNoContributionOfTheJobEndsItsStream) {
  ChiefWorld world(1, 1, SmallSpec());
  world.StartChief();
  world.Join(0);
  const uint64_t count = world.workers[0].grant->contribution_count();
  Progress progress = ProgressOf(*world.workers[0].grant);
  progress.add_report()->set_contribution(count - 1);
  EXPECT_TRUE(world.chief().OnProgress(world.workers[0].stream, progress).ok());
  progress.add_report()->set_contribution(count);
  EXPECT_EQ(world.chief().OnProgress(world.workers[0].stream, progress).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(JobStateTest, BadContributionsEndTheJob) {
  JobSpec spec = SmallSpec();
  spec.mutable_limits()->set_max_bad_contributions(1);
  ChiefWorld world(1, 1, spec);
  world.StartChief();
  world.Join(0);
  world.DoContribution(0);
  world.Beat(0, /*bad=*/true).IgnoreError();
  EXPECT_FALSE(world.workers[0].stop.has_value());
  world.DoContribution(0);
  world.Beat(0, /*bad=*/true).IgnoreError();
  world.Work(5);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(world.finished->code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(Message(*world.finished), HasSubstr("contribution 3"));
  EXPECT_THAT(Message(*world.finished), HasSubstr("'w'"));
  EXPECT_TRUE(world.shards[0].shut_down);
}

TEST(JobStateTest, AWorkersPermanentErrorEndsTheJob) {
  ChiefWorld world(1, 1, SmallSpec());
  world.StartChief();
  world.Join(0);
  Progress progress = ProgressOf(*world.workers[0].grant);
  progress.set_error("train.gz is truncated");
  progress.set_error_code(
      static_cast<uint32_t>(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(world.chief().OnProgress(world.workers[0].stream, progress).ok());
  world.Run(11);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(world.finished->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(*world.finished), HasSubstr("train.gz is truncated"));
}

TEST(JobStateTest, BoundedStalenessRetiresASlotWithoutWork) {
  JobSpec spec = SmallSpec();
  spec.mutable_update()->mutable_bounded_staleness()->set_bound(1);
  spec.mutable_train()->set_steps(3);
  ChiefWorld world(1, 2, spec);
  world.StartChief();
  world.Join(0);
  world.Join(1);
  // Slot 1 has one of the three contributions.
  world.DoContribution(1);
  world.workers[1].contributions = 1;
  world.Beat(1).IgnoreError();
  world.Run(0.1);
  EXPECT_TRUE(world.shards[0].retired[1]);
  EXPECT_FALSE(world.shards[0].retired[0]);
}

// Whatever the order of answers, joins and deaths: one Declare for each shard,
// one process for each generation, and the job ends.
TEST(JobStateTest, RandomOrdersNeverDeclareTwiceNorGrantAGenerationTwice) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    JobSpec spec = SmallSpec();
    spec.mutable_checkpoint()->set_every_steps(7);
    ChiefWorld world(3, 3, spec, seed);
    RandomStream random(seed * 77);
    world.StartChief();
    for (int i = 0; i < 60 && !world.finished.has_value(); ++i) {
      const int w = static_cast<int>(random.NextBelow(3));
      switch (random.NextBelow(7)) {
        case 0:
          world.Join(w);
          break;
        case 1:
          world.Register(w);
          break;
        case 2:
          if (random.NextBelow(4) == 0) {
            world.StartChief();
          }
          break;
        case 3:
          if (world.workers[w].grant.has_value()) {
            world.chief().OnStreamLost(world.workers[w].stream);
          }
          break;
        default:
          world.Run(0.2);
          if (world.workers[w].grant.has_value()) {
            world.Beat(w).IgnoreError();
          }
      }
    }
    for (int w = 0; w < 3; ++w) {
      world.Join(w);
    }
    world.Work();
    ASSERT_TRUE(world.finished.has_value()) << "seed " << seed;
    EXPECT_TRUE(world.finished->ok()) << "seed " << seed << *world.finished;
    EXPECT_FALSE(world.Logged("finished twice"));
    for (const auto& [grant, processes] : world.grants) {
      EXPECT_EQ(processes.size(), 1u)
          << "seed " << seed << " slot " << grant.first << " generation "
          << grant.second;
    }
    for (const ChiefWorld::Shard& shard : world.shards) {
      // A chief that died before it activated them may declare again.
      EXPECT_EQ(shard.restores, 0);
      EXPECT_EQ(shard.state, ACTIVE);
    }
    ASSERT_EQ(world.disk.count(world.done), 1u) << "seed " << seed;
    EXPECT_EQ(world.disk[world.done].step(), 20u) << "seed " << seed;
    EXPECT_FALSE(world.Logged("removed before its successor"));
  }
}

// A heartbeat with the histograms of `contribution`, of the first variable.
absl::Status TellHistograms(ChiefWorld* world, uint64_t contribution,
                            uint64_t number) {
  const ChiefWorld::Worker& worker = world->workers[0];
  Progress progress = ProgressOf(*worker.grant);
  progress.set_next_sequence(worker.next);
  progress.set_message_number(number);
  progress.add_histograms()->set_contribution(contribution);
  VariableHistograms* const of = progress.mutable_histograms(0)->add_variable();
  of->mutable_values()->add_count(7);
  of->mutable_gradients()->add_count(8);
  const absl::Status status =
      world->chief().OnProgress(worker.stream, progress);
  world->Run(0.1);
  return status;
}

TEST(JobStateTest, HistogramsAreWrittenOnceAtTheirStep) {
  ChiefWorld world(2, 2, SyncSpec(20));
  world.StartChief();
  world.Settle();
  world.Join(0);
  EXPECT_TRUE(world.Beat(0).ok());
  EXPECT_TRUE(TellHistograms(&world, 8, 1).ok());
  EXPECT_TRUE(TellHistograms(&world, 8, 1).ok());  // the chief has heard it
  ASSERT_EQ(world.histograms.size(), 1u);
  EXPECT_EQ(world.histograms[0].step, 5u);  // 0 and 1 are of step 1
  const auto& histograms = world.histograms[0].histograms;
  const std::string name = world.shards[0].declaration.variable(0).name();
  ASSERT_EQ(histograms.size(), 2u);
  EXPECT_EQ(histograms[0].first, "values/" + name);
  EXPECT_EQ(histograms[0].second.count(0), 7u);
  EXPECT_EQ(histograms[1].first, "gradients/" + name);
  EXPECT_EQ(histograms[1].second.count(0), 8u);
  EXPECT_FALSE(TellHistograms(&world, uint64_t{1} << 60, 2).ok());
  EXPECT_EQ(world.histograms.size(), 1u);
}

}  // namespace
}  // namespace weir
