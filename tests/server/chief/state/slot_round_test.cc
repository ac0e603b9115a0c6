// What a round means for a job is in job_state_away_test.cc.
#include "server/chief/state/slot_round.h"

#include <string>

#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Two shards that hold an async job of two workers.
struct TwoShards {
  TwoShards() : facts(Options()), round(&facts) {
    Declaration held;
    held.mutable_update()->mutable_async();
    facts.job->Hold(held);
  }
  JobOptions Options() {
    JobOptions options;
    options.ps_addresses = {"a:1", "b:1"};
    options.worker_count = 2;
    options.clock = &clock;
    return options;
  }

  // Begins a round, which says that slot 1 is retired.
  void Begin() {
    facts.roster.SetRetired(1, true);
    round.Advance();
  }
  // The shards that SetSlots was asked of since this was called last. Each
  // request has a Hello behind it.
  std::vector<int> Asked() {
    std::vector<int> shards;
    for (size_t i = 0; i < facts.actions.size(); ++i) {
      const auto* call = std::get_if<ShardCall>(&facts.actions[i]);
      if (call == nullptr ||
          !std::holds_alternative<SetSlotsRequest>(call->request)) {
        continue;
      }
      shards.push_back(call->shard);
      const auto* next = std::get_if<ShardCall>(&facts.actions.at(i + 1));
      EXPECT_TRUE(next != nullptr && next->shard == call->shard &&
                  std::holds_alternative<HelloCall>(next->request));
      EXPECT_TRUE(std::get<SetSlotsRequest>(call->request).slot(1).retired());
    }
    facts.actions.clear();
    return shards;
  }
  void Hello(int shard, const absl::StatusOr<HelloReply>& reply) {
    facts.tracker.Answered(shard, reply, facts.now_ns());
    if (reply.ok()) {
      round.OnHello(shard);
    }
    round.Advance();
  }

  FakeClock clock;
  JobFacts facts;
  SlotRound round;
};

TEST(SlotRoundTest, EndsWhenEveryShardTookItAndSaidItsMarks) {
  TwoShards t;
  t.round.Advance();
  EXPECT_THAT(t.Asked(), IsEmpty());
  t.Begin();
  EXPECT_THAT(t.Asked(), ElementsAre(0, 1));
  for (const int shard : {1, 0}) {
    EXPECT_TRUE(t.round.OnSet(shard, absl::OkStatus()).ok());
    EXPECT_TRUE(t.facts.roster.in_round());
    t.Hello(shard, HelloReply());
  }
  EXPECT_FALSE(t.facts.roster.in_round());
  EXPECT_THAT(t.Asked(), IsEmpty());
}

TEST(SlotRoundTest, AShardThatWasNotReachedIsCalledAgainWhenItAnswers) {
  TwoShards t;
  t.Begin();
  t.Asked();
  EXPECT_TRUE(t.round.OnSet(0, absl::OkStatus()).ok());
  t.Hello(0, HelloReply());
  for (int i = 0; i < 3; ++i) {
    const absl::Status refused = absl::UnavailableError("refused");
    EXPECT_TRUE(t.round.OnSet(1, refused).ok());
    EXPECT_THAT(std::get<LogLine>(t.facts.actions.back()).text,
                HasSubstr("ps 1 (b:1): refused: workers that register wait"));
    t.Hello(1, refused);
    EXPECT_THAT(t.Asked(), IsEmpty());
    t.facts.AskHello(1);
    t.Hello(1, HelloReply());
    EXPECT_THAT(t.Asked(), ElementsAre(1));
  }
  // The Hello of before came ahead of this call: its marks are not final.
  EXPECT_TRUE(t.round.OnSet(1, absl::OkStatus()).ok());
  t.round.Advance();
  EXPECT_TRUE(t.facts.roster.in_round());
  t.Hello(1, HelloReply());
  EXPECT_FALSE(t.facts.roster.in_round());
}

TEST(SlotRoundTest, OtherErrorsEndTheJob) {
  TwoShards t;
  t.Begin();
  const absl::Status error =
      t.round.OnSet(1, absl::PermissionDeniedError("another history"));
  EXPECT_EQ(error.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(error.message()),
              HasSubstr("ps 1 (b:1): another history"));
}

}  // namespace
}  // namespace weir
