#include "server/chief/checkpoint/checkpoint_cycle.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::AllOf;
using testing::Each;
using testing::SizeIs;

constexpr int kShards = 2;

// The shards' side of a cycle: what they are asked and how they answer.
struct Cycle {
  explicit Cycle(uint32_t tables_full_every)
      : facts(Options(tables_full_every)), cycle(&facts) {
    Declaration held;
    held.mutable_update()->mutable_sync()->set_contributions(1);
    facts.job->Hold(held);
  }
  static JobOptions Options(uint32_t tables_full_every) {
    JobOptions options;
    options.spec.mutable_checkpoint()->set_tables_full_every(tables_full_every);
    options.ps_addresses.resize(kShards, "a:1");
    return options;
  }
  // What the cycle asks for since the last time.
  std::vector<Action> Actions() { return std::exchange(facts.actions, {}); }

  // Begins checkpoint `step`; returns the base that each shard is asked to
  // extend.
  std::vector<std::string> Begin(uint64_t step) {
    cycle.BeginAtVersion(step);
    Actions();
    cycle.OnPrepared(absl::StrCat("ckpt-", step));
    std::vector<std::string> bases;
    for (const Action& action : Actions()) {
      const auto& call = std::get<ShardCall>(action);
      const auto& request = std::get<SnapshotRequest>(call.request);
      name = request.checkpoint();
      EXPECT_EQ(name, absl::StrCat("ckpt-", step));
      EXPECT_EQ(request.version(), step);
      bases.push_back(request.table_base());
    }
    EXPECT_THAT(bases, AllOf(SizeIs(kShards), Each(bases.at(0))));
    return bases;
  }

  // Each shard has written a table file that extends its entry of `bases`.
  void Written(const std::vector<std::string>& bases) {
    for (int s = 0; s < kShards; ++s) {
      ShardFile file;
      file.set_shard(static_cast<uint32_t>(s));
      file.mutable_tables()->set_base(bases.at(static_cast<size_t>(s)));
      cycle.OnWritten(s, name, file);
    }
    EXPECT_TRUE(facts.actions.empty());
    EXPECT_EQ(cycle.state(), CheckpointCycle::State::kReady);
  }

  void Commit(const absl::Status& status = absl::OkStatus()) {
    EXPECT_TRUE(cycle.Commit().ok());
    const std::vector<Action> actions = Actions();
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_EQ(std::get<CommitCheckpoint>(actions[0]).manifest.file_size(),
              kShards);
    cycle.OnCommitted(status);
    EXPECT_EQ(cycle.TakeOutcome()->result,
              status.ok() ? CheckpointCycle::Result::kCommitted
                          : CheckpointCycle::Result::kFailed);
  }

  // Makes a checkpoint that the shards write as they are asked to; returns its
  // base.
  std::string Take(uint64_t step) {
    const std::vector<std::string> bases = Begin(step);
    Written(bases);
    Commit();
    return bases.at(0);
  }

  JobFacts facts;
  CheckpointCycle cycle;
  std::string name;  // of the last one that began
};

TEST(CheckpointCycleTest, EveryNthHasAllRowsAndThoseBetweenExtendIt) {
  Cycle cycle(3);
  EXPECT_EQ(cycle.Take(10), "");
  EXPECT_EQ(cycle.Take(20), "ckpt-10");
  EXPECT_EQ(cycle.Take(30), "ckpt-10");
  EXPECT_EQ(cycle.Take(40), "");
  EXPECT_EQ(cycle.Take(50), "ckpt-40");
}

TEST(CheckpointCycleTest, OneMeansAllRowsEachTime) {
  Cycle cycle(1);
  for (const uint64_t step : {10, 20, 30}) {
    EXPECT_EQ(cycle.Take(step), "");
  }
}

// The shard no longer knows the base, or has dropped rows since.
TEST(CheckpointCycleTest, AShardThatWroteAllRowsUnaskedIsExtendedByNext) {
  Cycle cycle(3);
  EXPECT_EQ(cycle.Take(10), "");
  EXPECT_EQ(cycle.Begin(20).at(0), "ckpt-10");
  cycle.Written({"", "ckpt-10"});
  cycle.Commit();
  // The other shard then writes all rows, too, since its last file with all
  // rows is in ckpt-10.
  EXPECT_EQ(cycle.Begin(30).at(0), "ckpt-20");
  cycle.Written({"ckpt-20", ""});
  cycle.Commit();
  EXPECT_EQ(cycle.Take(40), "ckpt-30");
}

TEST(CheckpointCycleTest, OneThatWasNotCommittedIsNoBase) {
  Cycle cycle(3);
  EXPECT_EQ(cycle.Take(10), "");
  // Checkpoint 40 is to have all rows and is not committed. It is no base,
  // though the shards take it for their last one with all rows.
  EXPECT_EQ(cycle.Take(20), "ckpt-10");
  EXPECT_EQ(cycle.Take(30), "ckpt-10");
  EXPECT_EQ(cycle.Begin(40).at(0), "");
  cycle.Written({"", ""});
  cycle.Commit(absl::ResourceExhaustedError("disk full"));
  EXPECT_EQ(cycle.Begin(50).at(0), "");
  cycle.Written({"", ""});
  cycle.Commit();
  EXPECT_EQ(cycle.Take(60), "ckpt-50");
}

TEST(CheckpointCycleTest, AfterAFailedCommitTheNextHasAllRows) {
  Cycle cycle(9);
  EXPECT_EQ(cycle.Take(10), "");
  EXPECT_EQ(cycle.Begin(20).at(0), "ckpt-10");
  cycle.Written({"ckpt-10", "ckpt-10"});
  cycle.Commit(absl::DataLossError("ckpt-20 extends 'ckpt-10', which is gone"));
  EXPECT_EQ(cycle.Take(30), "");
  EXPECT_EQ(cycle.Take(40), "ckpt-30");
}

TEST(CheckpointCycleTest, AShardThatFailedEndsItWithoutACommit) {
  Cycle cycle(2);
  EXPECT_EQ(cycle.Take(10), "");
  EXPECT_EQ(cycle.Begin(20).at(0), "ckpt-10");
  cycle.cycle.OnWritten(0, cycle.name, ShardFile());
  cycle.cycle.OnWritten(1, cycle.name,
                        absl::ResourceExhaustedError("disk full"));
  const std::vector<Action> actions = cycle.Actions();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<DiscardCheckpoint>(actions[0]).name, "ckpt-20");
  EXPECT_EQ(cycle.cycle.TakeOutcome()->result,
            CheckpointCycle::Result::kFailed);
  EXPECT_EQ(cycle.Take(30), "ckpt-10");
}

TEST(CheckpointCycleTest, AnswersOfAnAbandonedOneCountForNoOther) {
  Cycle cycle(1);
  cycle.Begin(10);
  const std::string left = cycle.name;
  cycle.cycle.Abandon();
  const std::vector<Action> actions = cycle.Actions();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<DiscardCheckpoint>(actions[0]).name, "ckpt-10");
  EXPECT_EQ(cycle.cycle.TakeOutcome()->result,
            CheckpointCycle::Result::kAbandoned);
  const std::vector<std::string> bases = cycle.Begin(7);
  for (int s = 0; s < kShards; ++s) {
    SnapshotReply frozen;
    frozen.set_frozen(true);
    cycle.cycle.OnFrozen(s, left, frozen);
    cycle.cycle.OnWritten(s, left, absl::AbortedError("a newer one"));
  }
  EXPECT_EQ(cycle.cycle.state(), CheckpointCycle::State::kFreezing);
  cycle.Written(bases);
  cycle.Commit();
}

TEST(CheckpointCycleTest, AtNewestTakesTheVersionOfTheMarks) {
  Cycle cycle(1);
  cycle.facts.step = 3;
  cycle.cycle.BeginAtNewest();
  EXPECT_TRUE(cycle.cycle.wants_hold());
  cycle.cycle.OnHeld();
  cycle.cycle.OnMarks(/*torn=*/true, {3, 4});
  std::vector<Action> actions = cycle.Actions();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<PrepareCheckpoint>(actions[0]).step, 3u);
  cycle.cycle.OnPrepared("ckpt-3");
  actions = cycle.Actions();
  ASSERT_EQ(actions.size(), static_cast<size_t>(kShards));
  EXPECT_EQ(std::get<SnapshotRequest>(std::get<ShardCall>(actions[0]).request)
                .version(),
            3u);
}

}  // namespace
}  // namespace weir
