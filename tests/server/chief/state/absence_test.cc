// The waits themselves are in job_state_away_test.cc.
#include "server/chief/state/absence.h"

#include <string>

#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Phase = JobFacts::Phase;

// An async job of a job file in training, with four workers that are there.
struct Training {
  explicit Training(bool sdk_job = false)
      : facts(Options(sdk_job)), absence(&facts) {
    Declaration held;
    held.mutable_update()->mutable_async();
    facts.job->Hold(held);
    EXPECT_TRUE(facts.job->ReadLength(/*sample_count=*/100).ok());
    facts.Enter(Phase::kTraining);
    for (int w = 0; w < facts.roster.count(); ++w) {
      facts.roster.mutable_worker(w)->stream = 10 + static_cast<uint64_t>(w);
      facts.roster.mutable_worker(w)->state = Roster::Worker::State::kGranted;
    }
  }
  JobOptions Options(bool sdk_job) {
    JobOptions options;
    options.sdk_job = sdk_job;
    options.spec.mutable_train()->set_batch_size(10);
    options.spec.mutable_train()->set_steps(400);
    options.ps_addresses = {"a:1"};
    options.worker_count = 4;
    options.clock = &clock;
    return options;
  }

  // Worker `w` is not connected, and blocks have its contribution in part.
  void EndInside(int w) {
    facts.roster.mutable_worker(w)->stream = 0;
    facts.roster.mutable_worker(w)->absent_since_ns = facts.now_ns();
    HelloReply hello;
    SlotStatus* const status = hello.add_slot();
    status->set_slot(static_cast<uint32_t>(w));
    status->set_next_sequence_min(6);
    status->set_next_sequence_max(7);
    facts.tracker.Asked(0, facts.now_ns());
    facts.tracker.Answered(0, hello, facts.now_ns());
  }

  // The stream that the newest order to take a slot went to; 0: none.
  uint64_t Asked() {
    uint64_t stream = 0;
    for (const Action& action : facts.actions) {
      const auto* send = std::get_if<SendCommand>(&action);
      if (send != nullptr && send->command.has_take_slot()) {
        stream = send->stream;
      }
    }
    facts.actions.clear();
    return stream;
  }

  FakeClock clock;
  JobFacts facts;
  Absence absence;
};

TEST(AbsenceTest, AWorkerWithoutWorkIsNotAway) {
  Training t;
  EXPECT_THAT(t.absence.Away(), IsEmpty());
  t.facts.roster.mutable_worker(2)->stream = 0;
  EXPECT_THAT(t.absence.Away(), ElementsAre(2));
  t.facts.roster.mutable_worker(2)->next_sequence = 100;
  EXPECT_THAT(t.absence.Away(), IsEmpty());
}

TEST(AbsenceTest, TheTornContributionIsNamed) {
  Training t;
  EXPECT_EQ(t.absence.DescribeTorn(), "");
  t.EndInside(1);
  EXPECT_EQ(t.absence.Torn(), 1);
  EXPECT_THAT(t.absence.DescribeTorn(), HasSubstr("worker 1 ended inside "
                                                  "contribution 6"));
  t.facts.roster.mutable_worker(1)->stream = 3;  // it is finishing it
  EXPECT_FALSE(t.absence.Torn().has_value());
}

TEST(AbsenceTest, FewWorkersAreAskedToTakeASlotEachOnce) {  // I1
  Training t;
  t.EndInside(1);
  EXPECT_TRUE(t.absence.AskToTake(1));  // its own may yet come
  EXPECT_EQ(t.Asked(), 0u);
  t.clock.Advance(std::chrono::seconds(4));
  for (const uint64_t stream : {10u, 12u, 13u}) {
    EXPECT_TRUE(t.absence.AskToTake(1));
    EXPECT_EQ(t.Asked(), stream);
    EXPECT_TRUE(t.absence.AskToTake(1));  // that one may yet come
    EXPECT_EQ(t.Asked(), 0u);
    t.clock.Advance(std::chrono::seconds(16));
  }
  EXPECT_FALSE(t.absence.AskToTake(1));
}

TEST(AbsenceTest, WhatNobodyFinishesIsRetired) {
  Training t;
  t.EndInside(1);
  t.clock.Advance(std::chrono::seconds(4));
  EXPECT_TRUE(t.absence.FinishTorn());
  EXPECT_FALSE(t.facts.roster.worker(1).retired);
  for (const int w : {0, 2, 3}) {
    t.facts.roster.mutable_worker(w)->stream = 0;
  }
  t.clock.Advance(std::chrono::seconds(16));
  EXPECT_FALSE(t.absence.FinishTorn());
  EXPECT_TRUE(t.facts.roster.worker(1).retired);
}

TEST(AbsenceTest, NobodyTakesTheSlotOfAProgram) {
  Training t(/*sdk_job=*/true);
  t.EndInside(1);
  t.clock.Advance(std::chrono::seconds(4));
  EXPECT_FALSE(t.absence.AskToTake(1));
  EXPECT_EQ(t.Asked(), 0u);
}

TEST(AbsenceTest, NoProgressAtAllIsAnErrorUnlessProgramsRest) {
  for (const bool sdk_job : {false, true}) {
    Training t(sdk_job);
    t.clock.Advance(std::chrono::seconds(299));
    EXPECT_TRUE(t.absence.Watch(false, false).ok());
    t.clock.Advance(std::chrono::seconds(2));
    EXPECT_EQ(t.absence.Watch(false, false).ok(), sdk_job);
    t.facts.roster.mutable_worker(3)->stream = 0;
    const absl::Status status = t.absence.Watch(false, false);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("worker 3"));
    EXPECT_TRUE(t.absence.Watch(false, /*kept_waiting=*/true).ok());
  }
}

}  // namespace
}  // namespace weir
