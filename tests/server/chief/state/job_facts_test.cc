#include "server/chief/state/job_facts.h"

#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::SizeIs;
using Phase = JobFacts::Phase;

struct Facts {
  Facts() : facts(Options()) {}
  JobOptions Options() {
    JobOptions options;
    options.sdk_job = true;
    options.ps_addresses = {"a:1", "b:1"};
    options.worker_count = 2;
    options.clock = &clock;
    return options;
  }
  FakeClock clock;
  JobFacts facts;
};

TEST(JobFactsTest, WhatHasJustBegunIsNotWorthALine) {
  Facts f;
  EXPECT_FALSE(f.facts.TimeToSay("waiting", 5.0));
  f.clock.Advance(std::chrono::seconds(4));
  EXPECT_FALSE(f.facts.TimeToSay("waiting", 5.0));
  f.clock.Advance(std::chrono::seconds(2));
  EXPECT_TRUE(f.facts.TimeToSay("waiting", 5.0));
  EXPECT_FALSE(f.facts.TimeToSay("waiting", 5.0));
  EXPECT_FALSE(f.facts.TimeToSay("another", 5.0));
  f.clock.Advance(std::chrono::seconds(5));
  EXPECT_TRUE(f.facts.TimeToSay("waiting", 5.0));
}

TEST(JobFactsTest, APhaseBeginsWhenItIsEntered) {
  Facts f;
  f.clock.Advance(std::chrono::seconds(3));
  EXPECT_EQ(f.facts.SecondsInPhase(), 3.0);
  f.facts.Enter(Phase::kReady);
  EXPECT_EQ(f.facts.SecondsInPhase(), 0.0);
  EXPECT_TRUE(f.facts.Running());
  f.facts.Enter(Phase::kEnding);
  EXPECT_FALSE(f.facts.Running());
}

TEST(JobFactsTest, HellosAreFreshWhenEachShardHasAnsweredItsOwn) {
  Facts f;
  const std::vector<uint64_t> tickets = f.facts.AskAll();
  EXPECT_THAT(f.facts.actions, SizeIs(2));
  f.facts.tracker.Answered(0, HelloReply(), 0);
  EXPECT_FALSE(f.facts.AllFresh(tickets));
  f.facts.AskHelloIfDue(0, 1'000'000'000);
  EXPECT_THAT(f.facts.actions, SizeIs(2));  // it was asked just now
  f.facts.tracker.Answered(1, HelloReply(), 0);
  EXPECT_TRUE(f.facts.AllFresh(tickets));
  f.clock.Advance(std::chrono::seconds(1));
  f.facts.AskHelloIfDue(0, 1'000'000'000);
  EXPECT_THAT(f.facts.actions, SizeIs(3));
}

TEST(JobFactsTest, ProgressIsWhenAContributionWasAcknowledged) {
  Facts f;
  f.facts.Enter(Phase::kTraining);
  f.clock.Advance(std::chrono::seconds(1));
  f.facts.Count();
  EXPECT_EQ(f.facts.reached_ns, 0);
  f.facts.roster.mutable_worker(1)->next_sequence = 4;
  f.facts.Count();
  EXPECT_EQ(f.facts.step, 4u);
  EXPECT_EQ(f.facts.reached_ns, f.facts.now_ns());
  EXPECT_FALSE(f.facts.Complete());
  for (const int w : {0, 1}) {
    EXPECT_FALSE(f.facts.Done(w));
    f.facts.roster.mutable_worker(w)->retired = true;
    EXPECT_TRUE(f.facts.Done(w));
  }
  f.facts.Count();
  EXPECT_TRUE(f.facts.Complete());
  EXPECT_FALSE(f.facts.Finished());
  f.facts.Enter(Phase::kLast);
  f.facts.checkpoint_step = 4;
  EXPECT_TRUE(f.facts.Finished());
}

}  // namespace
}  // namespace weir
