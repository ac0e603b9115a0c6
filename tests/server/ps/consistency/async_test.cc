#include "server/ps/consistency/async.h"

#include <functional>
#include <new>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/server/ps/consistency/consistency_contract.h"
#include "tests/server/ps/consistency/unit_contract.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

INSTANTIATE_TEST_SUITE_P(Async, ConsistencyContract,
                         testing::Values("async {}"));
INSTANTIATE_TEST_SUITE_P(Async, UnitContract, OverUnits("async {}"));

Declaration Job() {
  return ParseDeclaration(
      "variable { name: 'a' shape: 64 } slot_count: 3 update { async {} }"
      "group { optimizer { sgd {} } schedule { learning_rate: 1 } }");
}

TEST(AsyncModeTest, CountsStalenessAsVersionsBetweenPullAndApply) {
  StoreTester ps(Job());
  // Slots 0..2 pull version 0 and push in turn: 0, 1 and 2 versions late.
  for (int slot = 0; slot < 3; ++slot) {
    const auto receipt = ps.PushConstant(ps.Chunk(slot, 0, 0, 0), 1.0f);
    ASSERT_TRUE(receipt.ok());
    EXPECT_EQ(receipt->staleness(), uint64_t(slot));
  }
  // A duplicate and a left-out block are no updates.
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(2, 0, 0, 0), 1.0f).ok());
  ASSERT_TRUE(ps.store->Push(ps.Chunk(2, 1, 0, 0), Payload()).ok());
  for (uint64_t sequence = 1; sequence <= 100; ++sequence) {
    ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, sequence, 0, 0), 0.0f).ok());
  }
  const PsStatus status = ps.store->GetStatus();
  EXPECT_EQ(status.staleness_bucket(0), 1u);
  EXPECT_EQ(status.staleness_bucket(1), 1u);
  EXPECT_EQ(status.staleness_bucket(3), 1u);
  uint64_t counted = 0;
  for (const uint64_t bucket : status.staleness_bucket()) {
    counted += bucket;
  }
  EXPECT_EQ(counted, 103u);
  EXPECT_EQ(status.staleness_max(), 102u);
  // Versions 3..102 fall into buckets 3..62 once each, and 40 into the last.
  EXPECT_EQ(status.staleness_bucket(63), 40u);
  EXPECT_EQ(status.version_max(), 103u);
}

TEST(AsyncModeTest, KeepsTheMarksOfSlotsApart) {
  StoreTester ps(Job());
  for (uint64_t sequence = 0; sequence < 4; ++sequence) {
    ASSERT_TRUE(ps.PushConstant(ps.Chunk(1, sequence, 0, 0), 1.0f).ok());
  }
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 0, 0, 0), 1.0f).ok());
  const HelloReply hello = ps.store->Hello();
  EXPECT_EQ(hello.slot(0).next_sequence_min(), 1u);
  EXPECT_EQ(hello.slot(1).next_sequence_min(), 4u);
  EXPECT_EQ(hello.slot(2).next_sequence_max(), 0u);
  EXPECT_EQ(ps.Values(0)[0], -5.0f);
}

TEST(AsyncModeTest, APushThatFindsNoMemoryChangesNothingAndMayComeAgain) {
  for (const char* update : {"async {}", "async { lock_free: true }"}) {
    EndingArena arena;
    std::vector<std::function<void()>> unwritten;
    const Declaration declaration = ParseDeclaration(absl::StrCat(
        "variable { name: 'a' shape: 64 }"
        "group { optimizer { adam {} } schedule { learning_rate: 1 } }"
        "update { ",
        update, " }"));
    StoreTester ps(declaration, 0, true, &arena);
    StoreTester undisturbed(declaration);
    for (StoreTester* one : {&ps, &undisturbed}) {
      ASSERT_TRUE(one->PushConstant(one->Chunk(0, 0, 0, 0), 1.0f).ok());
    }
    // A snapshot that is not written yet holds the values, m and v.
    SnapshotRequest request;
    *request.mutable_sender() = ps.SenderOf(0, 0);
    request.set_checkpoint(NameOf(MakeCheckpointDir()));
    ps.store->Snapshot(
        request, [](const absl::StatusOr<SnapshotReply>&) {},
        [&](std::function<void()> write) {
          unwritten.push_back(std::move(write));
        });
    const std::vector<float> before = ps.Values(0);
    const GradientChunk chunk = ps.Chunk(0, 1, 0, 1);
    for (const int buffers : {0, 1, 2}) {
      arena.left = buffers;
      EXPECT_THROW(std::ignore = ps.PushConstant(chunk, 3.0f), std::bad_alloc);
      EXPECT_EQ(ps.Values(0), before) << update << buffers;
      EXPECT_EQ(ps.Latest(0).version, 1u) << update << buffers;
    }
    arena.left = 3;
    EXPECT_EQ(ps.PushConstant(chunk, 3.0f)->outcome(), Receipt::ACCEPTED);
    ASSERT_TRUE(undisturbed.PushConstant(chunk, 3.0f).ok());
    EXPECT_EQ(ps.Values(0), undisturbed.Values(0)) << update;
  }
}

TEST(AsyncModeTest, RefusesToWaitForAVersion) {
  StoreTester ps(Job());
  const auto result = ps.Pull(0, 0, VersionWant(1));
  ASSERT_TRUE(result->done);
  EXPECT_EQ(result->answer.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir
