// JobState while a worker is away: stops and checkpoints without it.
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/chief/job_state.h"
#include "tests/server/chief/chief_world.h"

namespace weir {
namespace {

using testing::HasSubstr;

JobSpec SyncSpec() {
  JobSpec spec = SmallSpec();
  spec.mutable_train()->set_steps(4000);
  spec.mutable_update()->mutable_sync();
  return spec;
}

void Lose(ChiefWorld& world, int w) {
  world.chief().OnStreamLost(world.workers[w].stream);
  world.workers[w] = {};
  world.Run(0.05);
}

// Worker 0 waits for the version that lacks worker 1's contribution.
void Wait(ChiefWorld& world, int seconds) {
  for (int i = 0; i < seconds; ++i) {
    world.Beat(0).IgnoreError();
    world.Run(1);
  }
}

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

TEST(JobStateAwayTest, AStopInSyncNeedsNobody) {
  for (const int left : {0, 1}) {  // workers that live on
    ChiefWorld world(2, 2, SyncSpec());
    world.StartChief();
    world.Join(0);
    world.Join(1);
    world.Work(20);
    const uint64_t step = world.chief().status().step();
    ASSERT_GT(step, 5u);
    // This contribution belongs to a step that worker 1 will not finish.
    world.DoContribution(0);
    Lose(world, 1);
    if (left == 0) {
      Lose(world, 0);
    }
    world.chief().RequestStop("SIGINT");
    if (left == 1) {
      world.Beat(0).IgnoreError();  // holds
    }
    world.Work(60);
    ASSERT_TRUE(world.finished.has_value()) << left;
    EXPECT_EQ(Message(*world.finished),
              absl::StrCat("SIGINT: stopped after ckpt-", step));
    EXPECT_EQ(world.disk.size(), 1u);
    EXPECT_EQ(world.disk.begin()->second.applied_range(1), 2 * step);
  }
}

TEST(JobStateAwayTest, AStopDropsTheVersionThatADeadWorkerKeepsFromComing) {
  JobSpec spec = SyncSpec();
  spec.mutable_checkpoint()->set_every_steps(10);
  ChiefWorld world(2, 2, spec);
  world.StartChief();
  world.Join(0);
  world.Join(1);
  while (world.shards[0].snapshot_name.empty()) {
    world.Work(1);
    ASSERT_LT(world.chief().status().step(), 100u);
  }
  Lose(world, 1);
  const size_t before = world.disk.size();
  world.chief().RequestStop("SIGINT");
  world.Work(60);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_THAT(Message(*world.finished), HasSubstr("stopped after ckpt-"));
  EXPECT_EQ(world.disk.size(), before + 1);
  EXPECT_EQ(
      world.disk.count(absl::StrCat("ckpt-", world.chief().status().step())),
      1u);
}

// Shard 0 has the dead worker's last contribution, and with it the next
// version.
TEST(JobStateAwayTest, AStopWithAVersionThatAShardHasLeft) {
  for (const auto& [keeps, takes] :
       {std::pair(false, false), {false, true}, {true, false}}) {
    ChiefWorld world(2, 2, SyncSpec());
    world.takes_no_slot = !takes;
    world.StartChief();
    world.Join(0);
    world.Join(1);
    world.Work(20);
    const uint64_t step = world.chief().status().step();
    world.DoContribution(0);
    world.DoContribution(1, /*torn=*/true);
    Lose(world, 1);
    world.shards[0].keeps_previous = keeps;
    world.chief().RequestStop("SIGINT");
    world.Beat(0).IgnoreError();  // holds
    world.Work(800);
    ASSERT_TRUE(world.finished.has_value()) << keeps << takes;
    EXPECT_EQ(
        Message(*world.finished),
        absl::StrCat("SIGINT: stopped after ckpt-", keeps ? step : step + 1));
    EXPECT_EQ(world.Logged("the checkpoint has it on a part of the blocks"),
              !keeps && !takes);
    EXPECT_EQ(world.Logged(absl::StrCat("is to finish contribution ", step)),
              !keeps);
  }
}

// Worker 0 is asked to take the slot of worker 1, and does so only when that
// one has been started again.
TEST(JobStateAwayTest, AWorkerThatIsBackKeepsItsSlot) {
  ChiefWorld world(2, 2, SyncSpec());
  world.takes_no_slot = true;
  world.StartChief();
  world.Join(0);
  world.Join(1);
  world.Work(20);
  world.DoContribution(0);
  world.DoContribution(1, /*torn=*/true);
  Lose(world, 1);
  world.chief().RequestStop("SIGINT");
  for (int i = 0; i < 800 && !world.workers[0].take.has_value(); ++i) {
    world.Work(1);
  }
  ASSERT_EQ(world.workers[0].take, 1);
  RegisterRequest request = world.workers[0].request;
  request.set_rank(1);
  request.set_process(1 << 20);
  request.set_offer_high(1);

  ASSERT_TRUE(world.Join(1).grant.has_value());
  const absl::Status refused = world.chief().OnRegister(request).status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(Message(refused), HasSubstr("worker 1"));
  EXPECT_THAT(Message(refused), HasSubstr("is back"));
  EXPECT_TRUE(world.Beat(1).ok());

  Lose(world, 1);
  world.Run(4);
  EXPECT_TRUE(world.chief().OnRegister(request).ok());
}

TEST(JobStateAwayTest, APeriodicCheckpointComesWhileAWorkerIsAway) {
  for (const bool asked_before : {false, true}) {
    JobSpec spec = SyncSpec();
    spec.mutable_checkpoint()->set_every_seconds(30.0);
    ChiefWorld world(2, 2, spec);
    world.StartChief();
    world.Join(0);
    world.Join(1);
    world.Work(20);
    while (asked_before && world.shards[0].snapshot_name.empty()) {
      world.Work(1);
    }
    const uint64_t step = world.chief().status().step();
    Lose(world, 1);
    Wait(world, 40);
    EXPECT_EQ(world.disk.size(), 1u) << asked_before;
    EXPECT_EQ(world.disk.count(absl::StrCat("ckpt-", step)), 1u);
    EXPECT_FALSE(world.finished.has_value());
    // There is nothing new to save until the worker is back.
    Wait(world, 40);
    EXPECT_EQ(world.disk.size(), 1u);
    world.Join(1);
    world.Work(40 * 20);
    EXPECT_GE(world.disk.size(), 2u);
  }
}

// Worker 0 needs 9 s for a contribution and pushes all the time.
TEST(JobStateAwayTest, ASlowWorkerStopsTheOthersForATenthOfTheTimeAtMost) {
  JobSpec spec = SmallSpec();
  spec.mutable_train()->set_steps(100000);
  spec.mutable_checkpoint()->set_every_steps(10);
  ChiefWorld world(2, 2, spec);
  world.StartChief();
  world.Join(0);
  world.Join(1);
  int held = 0;
  constexpr int kTicks = 20 * 600;
  for (int tick = 0; tick < kTicks; ++tick) {
    ASSERT_FALSE(world.finished.has_value());
    // Its contribution is applied on shard 0 first, on shard 1 at its end.
    if (tick % 180 == 1) {
      world.DoContribution(0, /*torn=*/true);
    } else if (tick % 180 == 179) {
      world.DoContribution(0);
    }
    const bool holds = std::exchange(world.workers[0].held, false);
    world.Beat(0).IgnoreError();
    world.workers[0].held = world.workers[0].held || holds;
    held += world.workers[1].held;
    if (!world.workers[1].held) {
      world.DoContribution(1);
    }
    world.Beat(1).IgnoreError();
    world.Run(0.05);
  }
  EXPECT_LT(held, kTicks / 8);
  EXPECT_GT(held, 0);
}

TEST(JobStateAwayTest, AFreezeThatTakesLongIsNoLackOfProgress) {
  for (const bool sync : {false, true}) {
    JobSpec spec = sync ? SyncSpec() : SmallSpec();
    spec.mutable_train()->set_steps(4000);
    spec.mutable_checkpoint()->set_every_steps(100);
    ChiefWorld world(2, 2, spec);
    world.StartChief();
    world.Join(0);
    world.Join(1);
    world.no_freeze = true;
    while (world.shards[0].snapshot_name.empty()) {
      world.Work(1);
      ASSERT_LT(world.chief().status().step(), 1000u);
    }
    if (sync) {  // up to the version, then rows are written
      while (world.chief().status().step() < 100) {
        world.Work(1);
      }
    }
    for (int i = 0; i < 900; ++i) {
      world.Beat(0).IgnoreError();
      world.Beat(1).IgnoreError();
      world.Run(1);
    }
    ASSERT_FALSE(world.finished.has_value()) << *world.finished;
    EXPECT_TRUE(world.Logged("keeps the workers waiting"));
    world.no_freeze = false;
    world.Work();
    ASSERT_TRUE(world.finished.has_value());
    EXPECT_TRUE(world.finished->ok()) << *world.finished;
  }
}

TEST(JobStateAwayTest, APsThatIsToEndStopsTheJob) {
  ChiefWorld world(2, 2, SmallSpec());
  world.options.spec.mutable_train()->set_steps(4000);
  world.StartChief();
  world.Join(0);
  world.Join(1);
  world.Work(20);
  world.shards[1].leaving = true;
  world.Work(100);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_THAT(
      Message(*world.finished),
      HasSubstr("ps 1 (host1:1) was asked to end: stopped after ckpt-"));
  EXPECT_EQ(world.disk.size(), 1u);
  // The job has not ended: whoever starts tasks again starts them.
  for (const ChiefWorld::Shard& shard : world.shards) {
    EXPECT_TRUE(shard.shut_down);
    EXPECT_EQ(shard.shutdown_code, absl::StatusCode::kCancelled);
  }
}

TEST(JobStateAwayTest, AShardThatWorkersReachIsNotLost) {
  JobSpec spec = SmallSpec();
  spec.mutable_train()->set_steps(100000);
  spec.mutable_checkpoint()->set_every_steps(100);
  ChiefWorld world(2, 2, spec);
  world.StartChief();
  world.Join(0);
  world.Join(1);
  world.Work(20);
  world.shards[1].down = true;  // for the chief
  world.Work(60 * 20);
  EXPECT_FALSE(world.finished.has_value());
  EXPECT_TRUE(world.Logged("ps 1 (host1:1) does not answer the chief"));
  world.shards[1].down = false;
  world.Work(10 * 20);
  EXPECT_FALSE(world.finished.has_value());
  EXPECT_FALSE(world.disk.empty());
  // Nobody reaches it.
  world.shards[1].down = true;
  for (int i = 0; i < 15; ++i) {
    world.Beat(0).IgnoreError();
    world.Beat(1).IgnoreError();
    world.Run(1);
  }
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_EQ(world.finished->code(), absl::StatusCode::kUnavailable);
}

TEST(JobStateAwayTest, AWorkerThatRegistersWaitsForAShardThatOthersReach) {
  JobSpec spec = SmallSpec();
  spec.mutable_train()->set_steps(100000);
  ChiefWorld world(2, 2, spec);
  world.StartChief();
  world.Join(0);
  world.Join(1);
  world.Work(20);
  world.shards[1].down = true;  // for the chief
  Lose(world, 1);
  EXPECT_FALSE(world.Join(1).grant.has_value());
  world.Work(60 * 20);
  ASSERT_FALSE(world.finished.has_value()) << *world.finished;
  EXPECT_TRUE(world.Logged(
      "ps 1 (host1:1): connection refused: workers that register wait"));
  world.Register(1);
  EXPECT_FALSE(world.workers[1].grant.has_value());

  world.shards[1].down = false;
  world.Work(2 * 20);
  world.Register(1);
  EXPECT_TRUE(world.workers[1].grant.has_value());
  for (const ChiefWorld::Shard& shard : world.shards) {
    EXPECT_EQ(shard.process.at(1), world.workers[1].process);
  }
}

// The connection to a ps has ended while the chief stood still, so the first
// call fails.
TEST(JobStateAwayTest, AChiefThatWasPausedLosesNoShard) {
  JobSpec spec = SmallSpec();
  spec.mutable_train()->set_steps(100000);
  ChiefWorld world(2, 2, spec);
  world.StartChief();
  world.Join(0);
  world.Join(1);
  world.Work(20);
  world.shards[1].down = true;
  world.clock.Advance(std::chrono::minutes(2));
  world.Run(2);
  world.shards[1].down = false;
  world.Join(0);
  world.Join(1);
  world.Work(10 * 20);
  EXPECT_FALSE(world.finished.has_value()) << *world.finished;
  EXPECT_GT(world.chief().status().step(), 100u);
}

TEST(JobStateAwayTest, AWorkerThatIsStuckIsNamedWithItsContribution) {
  for (const bool sync : {false, true}) {
    JobSpec spec = sync ? SyncSpec() : SmallSpec();
    spec.mutable_train()->set_steps(100000);
    ChiefWorld world(1, 2, spec);
    world.StartChief();
    world.Join(0);
    world.Join(1);
    world.Work(20);
    const uint64_t sequence = world.workers[1].next;
    if (sync) {
      world.DoContribution(0);
    }
    for (int i = 0; i < 70; ++i) {
      if (!sync) {
        world.DoContribution(0);
      }
      world.Beat(0).IgnoreError();
      world.Beat(1).IgnoreError();
      world.Run(1);
    }
    EXPECT_TRUE(world.Logged(
        absl::StrCat("is connected, but has been at contribution ", sequence)));
    EXPECT_FALSE(world.Logged(absl::StrCat(
        "worker 0 (", world.workers[0].request.host(), ") is connected")));
  }
}

JobSpec AsyncSpec() {
  JobSpec spec = SmallSpec();
  spec.mutable_train()->set_steps(4000);
  return spec;
}

// Stops a job whose worker 1 died inside a contribution. Returns the sequence
// number of that contribution.
uint64_t StopWithATornContribution(ChiefWorld& world) {
  world.StartChief();
  world.Join(0);
  world.Join(1);
  world.Work(20);
  const uint64_t sequence = world.workers[1].next;
  world.DoContribution(1, /*torn=*/true);
  Lose(world, 1);
  world.chief().RequestStop("SIGINT");
  return sequence;
}

TEST(JobStateAwayTest, AStopHasATornContributionFinishedByAWorkerThatLives) {
  ChiefWorld world(2, 2, AsyncSpec());
  const uint64_t sequence = StopWithATornContribution(world);
  world.Work(2 * 20);
  EXPECT_FALSE(world.Logged("is to finish"));  // it may start again
  world.Work(8 * 20);
  EXPECT_TRUE(
      world.Logged(absl::StrCat("is to finish contribution ", sequence)));
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_THAT(Message(*world.finished), HasSubstr("stopped after ckpt-"));
  EXPECT_EQ(world.disk.size(), 1u);
}

TEST(JobStateAwayTest, NobodyIsAskedForATornContributionWhoseWorkerIsBack) {
  ChiefWorld world(2, 2, AsyncSpec());
  StopWithATornContribution(world);
  world.Work(20);
  world.Join(1);
  world.Work(8 * 20);
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_THAT(Message(*world.finished), HasSubstr("stopped after ckpt-"));
  EXPECT_FALSE(world.Logged("is to finish"));
}

TEST(JobStateAwayTest, AStopWithATornContributionSaysWhatItWaitedFor) {
  ChiefWorld world(2, 2, AsyncSpec());
  const uint64_t sequence = StopWithATornContribution(world);
  Wait(world, 80);
  EXPECT_TRUE(world.Logged(
      absl::StrCat("which ended inside contribution ", sequence, ", ")));
  EXPECT_TRUE(world.Logged("s of 60 s: start that worker again"));
  ASSERT_TRUE(world.finished.has_value());
  EXPECT_THAT(Message(*world.finished),
              HasSubstr(absl::StrCat("ended inside contribution ", sequence,
                                     ", which a part of the blocks lack")));
}

TEST(JobStateAwayTest, TheReportSaysWhichWorkerIsGone) {
  ChiefWorld world(2, 2, SyncSpec());
  world.StartChief();
  const auto state = [&world](int slot) {
    return world.chief().Report().worker(slot).state();
  };
  EXPECT_EQ(state(1), "absent");
  world.Join(0);
  world.Join(1);
  world.Work(20);
  EXPECT_EQ(state(1), "working");
  Lose(world, 1);
  EXPECT_EQ(state(0), "working");
  EXPECT_EQ(state(1), "absent");
  world.Join(1);
  EXPECT_EQ(state(1), "starting");  // until its first heartbeat
  world.Work(20);
  EXPECT_EQ(state(1), "working");
}

}  // namespace
}  // namespace weir
