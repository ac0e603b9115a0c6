// Whole checkpoints with workers, shards and a disk are in
// job_state_checkpoint_test.cc and job_state_retry_test.cc.
#include "server/chief/checkpoint/checkpoint_keeper.h"

#include <string>

#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using Phase = JobFacts::Phase;

// An async job in training on one shard, with one worker that is there and a
// checkpoint every five contributions.
struct Keeper {
  Keeper() : facts(Options()), absence(&facts), keeper(&facts, &absence) {
    Declaration held;
    held.mutable_update()->mutable_async();
    facts.job->Hold(held);
    EXPECT_TRUE(facts.job->ReadLength(/*sample_count=*/100).ok());
    facts.Enter(Phase::kTraining);
    facts.Count();
    facts.roster.mutable_worker(0)->stream = 7;
    keeper.BeginTraining();
  }
  JobOptions Options() {
    JobOptions options;
    options.spec.mutable_train()->set_batch_size(10);
    options.spec.mutable_train()->set_steps(20);
    options.spec.mutable_checkpoint()->set_every_steps(5);
    options.ps_addresses = {"a:1"};
    options.checkpoint_directory = "/disk";
    options.clock = &clock;
    return options;
  }

  void Do(uint64_t contributions) {
    facts.roster.mutable_worker(0)->next_sequence = contributions;
    facts.Count();
  }
  // Takes the outcome of the last one and goes on.
  absl::Status Advance() {
    absl::Status status = keeper.TakeOutcome();
    if (status.ok()) {
      status = keeper.Advance();
    }
    return status;
  }
  static google::protobuf::RepeatedPtrField<SlotStatus> Marks(uint64_t next) {
    google::protobuf::RepeatedPtrField<SlotStatus> slots;
    slots.Add()->set_next_sequence_min(next);
    slots.Mutable(0)->set_next_sequence_max(next);
    return slots;
  }
  // The shard answers the Hello that is under way.
  void Hello(uint64_t next) {
    HelloReply hello;
    *hello.mutable_slot() = Marks(next);
    facts.tracker.Answered(0, hello, facts.now_ns());
  }
  void Freeze(uint64_t next) {
    SnapshotReply frozen;
    frozen.set_frozen(true);
    *frozen.mutable_slot() = Marks(next);
    keeper.cycle().OnFrozen(0, "ckpt-5", frozen);
  }
  // The newest order to the worker: true for Hold, false for Release.
  std::optional<bool> Order() const {
    std::optional<bool> hold;
    for (const Action& action : facts.actions) {
      if (const auto* send = std::get_if<SendCommand>(&action)) {
        hold = send->command.hold();
      }
    }
    return hold;
  }
  template <typename T>
  int Count() const {
    int count = 0;
    for (const Action& action : facts.actions) {
      count += static_cast<int>(std::holds_alternative<T>(action));
    }
    return count;
  }
  // A checkpoint at 5 until its shard is to be frozen.
  void BeginOne() {
    Do(5);
    EXPECT_TRUE(Advance().ok());
    EXPECT_EQ(Order(), true);
    facts.roster.mutable_worker(0)->holding = true;
    EXPECT_TRUE(Advance().ok());
    Hello(5);
    EXPECT_TRUE(Advance().ok());
    EXPECT_EQ(Count<PrepareCheckpoint>(), 1);
    keeper.cycle().OnPrepared(std::string("ckpt-5"));
    EXPECT_TRUE(Advance().ok());
  }

  FakeClock clock;
  JobFacts facts;
  Absence absence;
  CheckpointKeeper keeper;
};

TEST(CheckpointKeeperTest, AHoldLastsUntilTheShardsAreFrozen) {  // I1
  Keeper k;
  k.Do(4);
  EXPECT_TRUE(k.Advance().ok());
  EXPECT_FALSE(k.keeper.hold_sent());
  k.BeginOne();
  EXPECT_TRUE(k.keeper.hold_sent());
  k.Freeze(5);
  EXPECT_TRUE(k.Advance().ok());
  EXPECT_FALSE(k.keeper.hold_sent());
  EXPECT_EQ(k.Order(), false);
  k.keeper.cycle().OnWritten(0, "ckpt-5", ShardFile());
  EXPECT_TRUE(k.Advance().ok());
  ASSERT_EQ(k.Count<CommitCheckpoint>(), 1);
  k.keeper.cycle().OnCommitted(absl::OkStatus());
  EXPECT_TRUE(k.Advance().ok());
  EXPECT_EQ(k.facts.checkpoint, "ckpt-5");
  EXPECT_EQ(k.facts.checkpoint_step, 5u);
  EXPECT_FALSE(k.keeper.finished());
}

TEST(CheckpointKeeperTest, WhatWasFrozenWithOtherMarksIsNotCommitted) {
  Keeper k;
  k.BeginOne();
  k.Freeze(6);  // a worker that was too slow to hold
  k.keeper.cycle().OnWritten(0, "ckpt-5", ShardFile());
  EXPECT_TRUE(k.Advance().ok());
  EXPECT_EQ(k.Count<CommitCheckpoint>(), 0);
  EXPECT_EQ(k.Count<DiscardCheckpoint>(), 1);
}

TEST(CheckpointKeeperTest, APeriodicCheckpointThatFailsIsLeftOut) {
  Keeper k;
  k.BeginOne();
  k.Freeze(5);
  k.keeper.cycle().OnWritten(0, "ckpt-5", absl::UnavailableError("disk full"));
  EXPECT_TRUE(k.Advance().ok());
  k.clock.Advance(std::chrono::seconds(60));
  EXPECT_TRUE(k.Advance().ok());
  EXPECT_EQ(k.Count<PrepareCheckpoint>(), 1);
}

// A ps needs six seconds to find that the disk is full.
TEST(CheckpointKeeperTest, AfterAHoldForOneThatFailsWorkersWorkForLonger) {
  Keeper k;
  k.BeginOne();
  k.clock.Advance(std::chrono::seconds(6));
  k.Freeze(5);
  k.keeper.cycle().OnWritten(0, "ckpt-5",
                             absl::ResourceExhaustedError("disk full"));
  EXPECT_TRUE(k.Advance().ok());
  k.Do(12);  // the next one is due
  for (int second = 0; second < 59; ++second) {
    EXPECT_TRUE(k.Advance().ok());
    EXPECT_FALSE(k.keeper.hold_sent());
    k.clock.Advance(std::chrono::seconds(1));
  }
  k.clock.Advance(std::chrono::seconds(1));
  EXPECT_TRUE(k.Advance().ok());
  EXPECT_TRUE(k.keeper.hold_sent());
}

// Otherwise a disk that is full would have the workers held again and again.
TEST(CheckpointKeeperTest, ATornOneThatThenFailsIsLeftOut) {
  Keeper k;
  k.BeginOne();
  k.Freeze(6);
  k.keeper.cycle().OnWritten(0, "ckpt-5", ShardFile());
  k.Do(6);
  EXPECT_TRUE(k.Advance().ok());
  k.clock.Advance(std::chrono::seconds(60));
  EXPECT_TRUE(k.Advance().ok());
  EXPECT_TRUE(k.keeper.hold_sent());  // it is overdue
  EXPECT_TRUE(k.Advance().ok());
  k.Hello(6);
  EXPECT_TRUE(k.Advance().ok());
  EXPECT_EQ(k.Count<PrepareCheckpoint>(), 2);
  k.keeper.cycle().OnPrepared(absl::ResourceExhaustedError("disk full"));
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(k.Advance().ok());
    EXPECT_FALSE(k.keeper.hold_sent());
    k.clock.Advance(std::chrono::seconds(6));
  }
}

TEST(CheckpointKeeperTest, ANeededCheckpointIsTriedAgainAndLater) {  // I2
  Keeper k;
  k.Do(20);
  k.facts.Enter(Phase::kLast);
  EXPECT_TRUE(k.Advance().ok());
  k.Hello(20);
  EXPECT_TRUE(k.Advance().ok());
  int tries = 1;
  for (const int wait : {1, 2, 4, 8, 10, 10}) {
    EXPECT_EQ(k.Count<PrepareCheckpoint>(), tries++);
    k.keeper.cycle().OnPrepared(absl::UnavailableError("disk full"));
    EXPECT_TRUE(k.Advance().ok());
    k.clock.Advance(std::chrono::milliseconds(wait * 1000 - 1));
    EXPECT_TRUE(k.Advance().ok());
    k.clock.Advance(std::chrono::milliseconds(1));
    EXPECT_TRUE(k.Advance().ok());
    k.Hello(20);
    EXPECT_TRUE(k.Advance().ok());
  }
  k.keeper.cycle().OnPrepared(absl::PermissionDeniedError("another chief"));
  EXPECT_TRUE(absl::IsPermissionDenied(k.Advance()));
}

TEST(CheckpointKeeperTest, AStopWithNothingNewHasItsCheckpoint) {
  Keeper k;
  k.Do(3);
  k.facts.checkpoint_step = 3;
  k.facts.stop = "SIGTERM";
  k.facts.stop_ns = k.facts.now_ns();
  EXPECT_TRUE(k.Advance().ok());
  k.facts.roster.mutable_worker(0)->holding = true;
  EXPECT_TRUE(k.Advance().ok());
  EXPECT_FALSE(k.keeper.finished());
  k.Hello(3);
  EXPECT_TRUE(k.Advance().ok());
  EXPECT_TRUE(k.keeper.finished());
  EXPECT_TRUE(k.keeper.hold_sent());  // I1: nobody goes on behind it
}

TEST(CheckpointKeeperTest, AStopThatCannotFreezeGivesUp) {
  Keeper k;
  k.Do(3);
  k.facts.stop = "SIGTERM";
  k.facts.stop_ns = k.facts.now_ns();
  EXPECT_TRUE(k.Advance().ok());
  k.clock.Advance(std::chrono::seconds(61));
  EXPECT_TRUE(absl::IsCancelled(k.Advance()));
}

}  // namespace
}  // namespace weir
