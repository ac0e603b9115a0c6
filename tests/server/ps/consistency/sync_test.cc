#include "server/ps/consistency/sync.h"

#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/io/safetensors.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/server/ps/consistency/consistency_contract.h"
#include "tests/server/ps/consistency/unit_contract.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

using absl::StatusCode;

INSTANTIATE_TEST_SUITE_P(Sync, ConsistencyContract,
                         testing::Values("sync { contributions: 1 }"));
INSTANTIATE_TEST_SUITE_P(Sync, UnitContract,
                         OverUnits("sync { contributions: 1 }"));

// One slot per contribution; blocks of 64.
Declaration Job(int contributions, const std::string& more = "") {
  return ParseDeclaration(absl::StrCat(
      "variable { name: 'a' shape: 64 } variable { name: 'b' shape: 64 }"
      "group { optimizer { sgd {} } schedule { learning_rate: 0.125 } }"
      "update { sync { contributions: ",
      contributions, " } } slot_count: ", contributions, more));
}

TEST(SyncModeTest, WeighsEachVariableByWhoBroughtIt) {
  const Declaration declaration = ParseDeclaration(
      "variable { name: 'a' shape: 16 } variable { name: 'b' shape: 16 }"
      "variable { name: 'c' shape: 16 }"
      "group { optimizer { adam {} } schedule { learning_rate: 1 } }"
      "update { sync { contributions: 3 } } slot_count: 3");
  StoreTester ps(declaration);
  StoreTester without_zeros(declaration);
  const auto push = [](StoreTester& store, int m, float weight, float value,
                       const std::vector<uint32_t>& left_out) {
    GradientChunk chunk = store.Chunk(m, 0, 0, 0, m);
    chunk.mutable_push()->set_weight(weight);
    for (const uint32_t v : left_out) {
      chunk.mutable_push()->add_left_out(v);
    }
    ASSERT_EQ(store.PushConstant(chunk, value)->outcome(), Receipt::ACCEPTED);
  };
  push(ps, 0, 2.0f, 5.0f, {1, 2});
  push(ps, 1, 1.0f, -7.0f, {2});
  push(ps, 2, 0.0f, 9.0f, {});
  const std::vector<float> values = ps.Values(0);
  // Adam's first step is -lr * sign(mean): a's mean is 1 (3/3), b's is -7.
  EXPECT_NEAR(values[0], -1.0f, 1e-5);
  EXPECT_NEAR(values[16], 1.0f, 1e-5);
  EXPECT_EQ(values[32], 0.0f);  // nobody brought c
  EXPECT_EQ(ps.Latest(0).version, 1u);

  // c's step count did not move: its next step is again the first, of size lr.
  for (int m = 0; m < 3; ++m) {
    ASSERT_TRUE(ps.PushConstant(ps.Chunk(m, 1, 0, 1, m), 4.0f).ok());
  }
  EXPECT_NEAR(ps.Values(0)[32], -1.0f, 1e-5);
}

TEST(SyncModeTest, KeepsTheLastVersionUntilTheNextStepBegins) {
  StoreTester ps(Job(1));
  const auto code = [&](int block, uint64_t version) {
    const auto result = ps.Pull(0, block, VersionWant(version));
    EXPECT_TRUE(result->done);
    if (result->answer.ok()) {
      EXPECT_EQ(result->answer->version, version);
      EXPECT_EQ(result->answer->values.data()[0], -0.125f * float(version));
    }
    return result->answer.status().code();
  };
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 0, 0, 0), 1.0f).ok());
  EXPECT_EQ(code(0, 0), StatusCode::kOk);  // block 1 may still need it
  EXPECT_EQ(code(0, 1), StatusCode::kOk);
  EXPECT_EQ(code(1, 0), StatusCode::kOk);
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 0, 1, 0), 1.0f).ok());
  EXPECT_EQ(code(1, 0), StatusCode::kOk);
  // Step 1 begins on block 0: version 0 is gone on every block.
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 1, 0, 1), 1.0f).ok());
  EXPECT_EQ(code(0, 0), StatusCode::kAborted);
  EXPECT_EQ(code(1, 0), StatusCode::kAborted);
  EXPECT_EQ(code(0, 1), StatusCode::kOk);
  EXPECT_EQ(code(1, 1), StatusCode::kOk);
  EXPECT_EQ(code(0, 2), StatusCode::kOk);
}

TEST(SyncModeTest, ContributionZerosHyperParametersHold) {
  StoreTester ps(Job(2));
  for (int m = 1; m >= 0; --m) {
    GradientChunk chunk = ps.Chunk(m, 0, 0, 0, m);
    Hyper* const hyper = chunk.mutable_push()->add_hyper();
    hyper->set_group(0);
    hyper->set_learning_rate(m == 0 ? 2.0 : 64.0);
    ASSERT_TRUE(ps.PushConstant(chunk, 1.0f).ok());
  }
  EXPECT_EQ(ps.Values(0)[0], -2.0f);
}

TEST(SyncModeTest, CostsTwiceTheValuesPlusSlots) {
  const Declaration declaration = ParseDeclaration(
      "variable { name: 'a' shape: 4096 } block_elements: 1024 "
      "group { optimizer { adam {} } schedule { learning_rate: 1 } }"
      "update { sync { contributions: 2 } } slot_count: 2");
  CountingArena arena;
  {
    StoreTester ps(declaration, 0, true, &arena);
    const int64_t values = int64_t{4096} * 4;
    EXPECT_EQ(arena.bytes(), 3 * values);
    for (uint64_t step = 0; step < 10; ++step) {
      for (int block = 0; block < 4; ++block) {
        for (int m = 1; m >= 0; --m) {
          ASSERT_TRUE(
              ps.PushConstant(ps.Chunk(m, step, block, step, m), 1.0f).ok());
        }
        // Readers of the new version come and go.
        ASSERT_TRUE(ps.Pull(0, block, VersionWant(step + 1))->done);
      }
    }
    EXPECT_EQ(arena.bytes_max(), 4 * values);
    EXPECT_EQ(ps.store->GetStatus().bytes_resident(), uint64_t(4 * values));
  }
  EXPECT_EQ(arena.bytes(), 0);
}

TEST(SyncModeTest, ASlowReaderKeepsItsVersion) {
  StoreTester ps(Job(1));
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 0, 0, 0), 1.0f).ok());
  const auto held = ps.Pull(0, 0, VersionWant(0));
  const auto newer = ps.Pull(0, 0, VersionWant(1));
  for (uint64_t step = 1; step < 5; ++step) {
    ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, step, 0, step), 1.0f).ok());
  }
  EXPECT_EQ(held->answer->values.data()[63], 0.0f);
  EXPECT_EQ(newer->answer->values.data()[63], -0.125f);
  EXPECT_EQ(ps.Values(0)[63], -0.625f);
}

TEST(SyncModeTest, ASnapshotFreezesEachBlockAtTheVersion) {
  StoreTester ps(Job(1));
  const std::string dir = MakeCheckpointDir();
  const auto push = [&](uint64_t step, int block) {
    ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, step, block, step), 1.0f).ok());
  };
  push(0, 0);
  std::vector<SnapshotReply> replies;
  SnapshotRequest request;
  *request.mutable_sender() = ps.SenderOf(0, 0);
  request.set_checkpoint(NameOf(dir));
  request.set_version(1);
  std::function<void()> write;
  ps.store->Snapshot(
      request,
      [&](absl::StatusOr<SnapshotReply> reply) {
        ASSERT_TRUE(reply.ok()) << reply.status();
        replies.push_back(*reply);
      },
      [&](std::function<void()> run) { write = std::move(run); });
  EXPECT_TRUE(replies.empty());
  push(0, 1);
  ASSERT_EQ(replies.size(), 1u);  // FROZEN as block 1 reached version 1
  EXPECT_TRUE(replies[0].frozen());
  EXPECT_EQ(replies[0].slot(0).next_sequence_min(), 1u);
  EXPECT_EQ(replies[0].slot(0).next_sequence_max(), 1u);
  push(1, 0);
  push(1, 1);
  write();
  ASSERT_EQ(replies.size(), 2u);
  const auto file = SafetensorsReader::Open(
      Files::Real(), dir + "/" + replies[1].file().name());
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<float> values(128);
  ASSERT_TRUE(
      (*file)->Read(*(*file)->Find("values"), 0, values.data(), 512).ok());
  EXPECT_EQ(values, std::vector<float>(128, -0.125f));
  // Both blocks are at 2 by now, and step 2 has not begun.
  EXPECT_TRUE(ps.Snapshot(dir, 1).error.ok());
  EXPECT_EQ(ps.Snapshot(dir, 0).error.code(), StatusCode::kOutOfRange);
  EXPECT_TRUE(ps.Snapshot(dir, 2).error.ok());
}

// One of two workers ended with its second contribution on block 0 alone.
TEST(SyncModeTest, ASnapshotOfTheVersionThatOneBlockHasLeft) {
  StoreTester ps(Job(2));
  const auto push = [&](int m, uint64_t step, int block) {
    ASSERT_TRUE(
        ps.PushConstant(ps.Chunk(m, step, block, step, m), 1.0f + m).ok());
  };
  for (const int block : {0, 1}) {
    push(0, 0, block);
    push(1, 0, block);
    push(0, 1, block);
  }
  push(1, 1, 0);
  ASSERT_EQ(ps.Latest(0).version, 2u);
  ASSERT_EQ(ps.Latest(1).version, 1u);
  const std::string dir = MakeCheckpointDir();
  const auto result = ps.Snapshot(dir, 1);
  ASSERT_EQ(result.replies.size(), 2u) << result.error;
  ASSERT_TRUE(
      CommitManifest(dir, ps.declaration, {result.replies[1].file()}).ok());
  Declaration again = ps.declaration;
  again.set_history(2);
  again.set_base_version(1);
  StoreTester restored(again);
  ASSERT_TRUE(restored.Restore(again, dir).ok());
  EXPECT_EQ(restored.Values(0), std::vector<float>(64, -0.125f * 1.5f));
  EXPECT_EQ(restored.Values(1), std::vector<float>(64, -0.125f * 1.5f));
  // Step counts are those of the version, too.
  EXPECT_EQ(restored.Latest(0).version, 1u);
  push(1, 1, 1);
  const std::string later = MakeCheckpointDir();
  EXPECT_TRUE(ps.Snapshot(later, 2).error.ok());
  push(0, 2, 0);
  // Version 2 is everywhere: nobody needs 1 any more.
  EXPECT_EQ(ps.Snapshot(later, 1).error.code(), StatusCode::kOutOfRange);
}

// Its optimizer's state at that version is gone.
TEST(SyncModeTest, ABlockWithStateIsFrozenAtItsOwnVersionOnly) {
  StoreTester ps(ParseDeclaration(
      "variable { name: 'a' shape: 64 }"
      "group { optimizer { adam {} } schedule { learning_rate: 1 } }"
      "update { sync { contributions: 1 } }"));
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 0, 0, 0), 1.0f).ok());
  const std::string dir = MakeCheckpointDir();
  EXPECT_EQ(ps.Snapshot(dir, 0).error.code(), StatusCode::kOutOfRange);
  EXPECT_TRUE(ps.Snapshot(dir, 1).error.ok());
}

TEST(SyncModeTest, ASnapshotInTheMiddleOfAStepHoldsTheVersionsMarks) {
  StoreTester ps(Job(2));
  for (const int m : {0, 1}) {
    for (const int block : {0, 1}) {
      ASSERT_TRUE(ps.PushConstant(ps.Chunk(m, 0, block, 0, m), 1.0f).ok());
    }
  }
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 1, 0, 1, 0), 1.0f).ok());
  const auto result = ps.Snapshot(MakeCheckpointDir(), 1);
  ASSERT_EQ(result.replies.size(), 2u);
  EXPECT_EQ(result.replies[0].slot(0).next_sequence_max(), 1u);
}

TEST(SyncModeTest, AStepThatFindsNoMemoryEndsThePs) {
  // Its contribution has been counted, so nobody would bring it again.
  EndingArena arena;
  StoreTester ps(Job(1), 0, true, &arena);
  arena.left = 0;
  EXPECT_EXIT(std::ignore = ps.PushConstant(ps.Chunk(0, 0, 0, 0), 1.0f),
              testing::ExitedWithCode(kExitRetry),
              "no more memory.*a sync step");
}

}  // namespace
}  // namespace weir
