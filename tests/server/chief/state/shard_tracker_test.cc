#include "server/chief/state/shard_tracker.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kLostAfter = 10 * kSecond;
constexpr uint64_t kHistory = 7;

HelloReply Loaded(uint64_t incarnation, uint64_t history = kHistory) {
  HelloReply reply;
  reply.set_incarnation(incarnation);
  reply.set_state(LOADED);
  reply.set_history(history);
  return reply;
}

void AddMarks(HelloReply* reply, uint32_t slot, uint64_t min, uint64_t max) {
  SlotStatus* const status = reply->add_slot();
  status->set_slot(slot);
  status->set_next_sequence_min(min);
  status->set_next_sequence_max(max);
}

absl::Status Refused() { return absl::UnavailableError("refused"); }

// Two shards, host0:1 and host1:1, that have answered at 0.
struct TwoShards {
  TwoShards() : tracker({"host0:1", "host1:1"}, kLostAfter) {
    Answer(0, Loaded(100), 0);
    Answer(1, Loaded(101), 0);
  }

  uint64_t Answer(int shard, const absl::StatusOr<HelloReply>& reply,
                  int64_t now_ns) {
    const uint64_t ticket = tracker.Asked(shard, now_ns);
    tracker.Answered(shard, reply, now_ns);
    return ticket;
  }

  void Expect() { tracker.Expect(kHistory, 0); }

  ShardTracker tracker;
};

TEST(ShardTrackerTest, AnAnswerIsFreshForItsTicketAndThoseBefore) {
  ShardTracker tracker({"host0:1"}, kLostAfter);
  const uint64_t first = tracker.Asked(0, 0);
  const uint64_t second = tracker.Asked(0, 0);
  EXPECT_FALSE(tracker.Fresh(0, first));
  tracker.Answered(0, Loaded(100), 0);
  EXPECT_TRUE(tracker.Fresh(0, first));
  EXPECT_FALSE(tracker.Fresh(0, second));  // the answer to the first one
  tracker.Answered(0, Refused(), 0);
  EXPECT_FALSE(tracker.Fresh(0, second));  // an error is no answer
  const uint64_t third = tracker.Asked(0, 0);
  tracker.Answered(0, Loaded(100), 0);
  EXPECT_TRUE(tracker.Fresh(0, third));
  EXPECT_TRUE(tracker.Fresh(0, second));
}

TEST(ShardTrackerTest, AHelloIsDueOneAtATimeAndAPeriodApart) {
  ShardTracker tracker({"host0:1"}, kLostAfter);
  EXPECT_TRUE(tracker.Due(0, kSecond, 0));
  tracker.Asked(0, 0);
  EXPECT_FALSE(tracker.Due(0, kSecond, 5 * kSecond));  // still under way
  tracker.Answered(0, Refused(), 5 * kSecond);
  EXPECT_TRUE(tracker.Due(0, kSecond, 5 * kSecond));
  tracker.Asked(0, 5 * kSecond);
  tracker.Answered(0, Loaded(100), 5 * kSecond);
  EXPECT_FALSE(tracker.Due(0, kSecond, 6 * kSecond - 1));
  EXPECT_TRUE(tracker.Due(0, kSecond, 6 * kSecond));
}

TEST(ShardTrackerTest, AllAnsweredWhenEachDidOnce) {
  ShardTracker tracker({"host0:1", "host1:1"}, kLostAfter);
  tracker.Asked(0, 0);
  tracker.Answered(0, Loaded(100), 0);
  tracker.Asked(1, 0);
  tracker.Answered(1, Refused(), 0);
  EXPECT_FALSE(tracker.AllAnswered());
  tracker.Asked(1, 0);
  tracker.Answered(1, Loaded(101), 0);
  EXPECT_TRUE(tracker.AllAnswered());
}

TEST(ShardTrackerTest, NothingIsLostBeforeItIsExpected) {
  TwoShards shards;
  shards.Answer(0, Refused(), kSecond);
  EXPECT_TRUE(shards.tracker.Check(1000 * kSecond, 0).ok());
}

TEST(ShardTrackerTest, OnlySilenceForLostAfterLosesAShard) {
  TwoShards shards;
  shards.Expect();
  shards.Answer(1, Refused(), kSecond);
  EXPECT_TRUE(shards.tracker.Check(kLostAfter, 0).ok());
  const absl::Status lost = shards.tracker.Check(kLostAfter + 1, 0);
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(lost.message()),
              HasSubstr("ps 1 (host1:1) has not answered for 10 s"));
  EXPECT_THAT(std::string(lost.message()), HasSubstr("refused"));
  // The workers had a contribution acknowledged meanwhile, by every shard.
  EXPECT_TRUE(shards.tracker.Check(kLostAfter + 1, kSecond).ok());
}

TEST(ShardTrackerTest, TimeWithoutALookIsNoSilenceOfAShard) {
  TwoShards shards;
  shards.Expect();
  constexpr int64_t kPause = 120 * kSecond;
  shards.tracker.Look(kSecond);
  shards.Answer(1, Refused(), kPause);
  shards.tracker.Look(kPause);
  EXPECT_TRUE(shards.tracker.Check(kPause, 0).ok());
  EXPECT_FALSE(shards.tracker.Unreachable(kPause).has_value());
  // From there on the silence is one of the shard.
  for (int64_t now_ns = kPause; now_ns <= kPause + kLostAfter;
       now_ns += kSecond) {
    shards.tracker.Look(now_ns);
    EXPECT_TRUE(shards.tracker.Check(now_ns, 0).ok());
  }
  EXPECT_EQ(shards.tracker.Check(kPause + kLostAfter + 1, 0).code(),
            absl::StatusCode::kUnavailable);
}

TEST(ShardTrackerTest, AShardIsUnreachableBeforeItIsLost) {
  TwoShards shards;
  shards.Expect();
  shards.Answer(1, Refused(), kSecond);
  EXPECT_FALSE(shards.tracker.Unreachable(kLostAfter / 2).has_value());
  EXPECT_EQ(shards.tracker.Unreachable(kLostAfter / 2 + 1), 1);
  shards.Answer(1, Loaded(101), kLostAfter);
  EXPECT_FALSE(shards.tracker.Unreachable(2 * kLostAfter).has_value());
}

TEST(ShardTrackerTest, AnotherProcessHasLostTheShard) {
  TwoShards shards;
  shards.Expect();
  shards.Answer(1, Loaded(102), kSecond);
  const absl::Status status = shards.tracker.Check(kSecond, 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ps 1 (host1:1)"));
}

TEST(ShardTrackerTest, AnEmptyShardWasRestarted) {
  TwoShards shards;
  shards.Expect();
  HelloReply empty;
  empty.set_incarnation(101);
  shards.Answer(1, empty, kSecond);
  EXPECT_EQ(shards.tracker.Check(kSecond, 0).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ShardTrackerTest, AnotherHistoryMeansAnotherChiefAlsoInANewProcess) {
  TwoShards shards;
  shards.Expect();
  shards.Answer(1, Loaded(101, kHistory + 1), kSecond);
  EXPECT_EQ(shards.tracker.Check(kSecond, 0).code(),
            absl::StatusCode::kPermissionDenied);
  shards.Answer(1, Loaded(102, kHistory + 1), kSecond);
  EXPECT_EQ(shards.tracker.Check(kSecond, 0).code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(ShardTrackerTest, AnAnswerFromBeforeTheHistoryIsNoForeignOne) {
  ShardTracker tracker({"host0:1"}, kLostAfter);
  HelloReply before;
  before.set_incarnation(100);
  tracker.Asked(0, 0);
  tracker.Answered(0, before, 0);
  tracker.SetIncarnation(0, 100);
  tracker.Expect(kHistory, 0);
  EXPECT_TRUE(tracker.Check(kSecond, 0).ok());
}

TEST(ShardTrackerTest, TheIncarnationOfDeclareCountsNotThatOfAnOlderHello) {
  TwoShards shards;
  shards.tracker.SetIncarnation(1, 200);  // it was restarted in between
  shards.Expect();
  EXPECT_FALSE(shards.tracker.Check(kSecond, 0).ok());
  shards.Answer(1, Loaded(200), kSecond);
  EXPECT_TRUE(shards.tracker.Check(kSecond, 0).ok());
}

TEST(ShardTrackerTest, TheSmallestMarkOfAllShardsCounts) {
  TwoShards shards;
  shards.Expect();
  HelloReply first = Loaded(100);
  AddMarks(&first, 0, 5, 5);
  HelloReply second = Loaded(101);
  AddMarks(&second, 0, 4, 5);
  shards.Answer(0, first, kSecond);
  shards.Answer(1, second, kSecond);
  EXPECT_EQ(shards.tracker.NextSequenceMin(0), 4u);
  EXPECT_EQ(shards.tracker.NextSequenceMin(1), 0u);  // nobody had it yet
}

TEST(ShardTrackerTest, MarksAreThoseOfTheNewestAnswers) {
  TwoShards shards;
  shards.Expect();
  HelloReply first = Loaded(100);
  AddMarks(&first, 1, 3, 3);
  HelloReply second = Loaded(101);
  AddMarks(&second, 1, 5, 5);
  shards.Answer(0, first, kSecond);
  shards.Answer(1, second, kSecond);
  EXPECT_EQ(shards.tracker.NextSequenceMin(1), 3u);
  EXPECT_TRUE(shards.tracker.Marks(1).torn());
  EXPECT_FALSE(shards.tracker.Marks(0).torn());
  // A call that failed says nothing new.
  shards.Answer(0, absl::UnavailableError("away"), kSecond);
  EXPECT_EQ(shards.tracker.NextSequenceMin(1), 3u);
  HelloReply later = Loaded(100);
  AddMarks(&later, 1, 5, 5);
  shards.Answer(0, later, kSecond);
  EXPECT_EQ(shards.tracker.NextSequenceMin(1), 5u);
  EXPECT_FALSE(shards.tracker.Marks(1).torn());
}

}  // namespace
}  // namespace weir
