#include "server/ps/consistency/lock_free.h"

#include <atomic>
#include <thread>
#include <vector>

#include "common/io/safetensors.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/server/ps/consistency/consistency_contract.h"
#include "tests/server/ps/consistency/unit_contract.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

INSTANTIATE_TEST_SUITE_P(LockFree, ConsistencyContract,
                         testing::Values("async { lock_free: true }"));
INSTANTIATE_TEST_SUITE_P(LockFree, UnitContract,
                         OverUnits("async { lock_free: true }"));

constexpr int kSlots = 4;
constexpr uint64_t kContributions = 300;

Declaration Job() {
  return ParseDeclaration(
      "variable { name: 'a' shape: 4096 } block_elements: 4096 slot_count: 4 "
      "group { optimizer { sgd {} } schedule { learning_rate: 1 } }"
      "update { async { lock_free: true } }");
}

TEST(LockFreeTest, LosesAdditionsAtMostAndKeepsMarksExact) {
  StoreTester ps(Job());
  std::vector<std::thread> threads;
  for (int slot = 0; slot < kSlots; ++slot) {
    threads.emplace_back([&ps, slot] {
      for (uint64_t sequence = 0; sequence < kContributions; ++sequence) {
        const auto receipt =
            ps.PushConstant(ps.Chunk(slot, sequence, 0, 0), -1.0f);
        ASSERT_TRUE(receipt.ok());
        ASSERT_EQ(receipt->outcome(), Receipt::ACCEPTED);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  int64_t lost = 0;
  for (const float value : ps.Values(0)) {
    ASSERT_LE(value, float(kSlots * kContributions));  // never doubled
    ASSERT_GE(value, float(kContributions));  // a thread keeps its own last
    lost += kSlots * kContributions - int64_t(value);
  }
  EXPECT_EQ(ps.Latest(0).version, kSlots * kContributions);
  for (int slot = 0; slot < kSlots; ++slot) {
    EXPECT_EQ(ps.store->Hello().slot(slot).next_sequence_min(), kContributions);
  }
  RecordProperty("additions_lost", static_cast<int>(lost));
}

TEST(LockFreeTest, ASnapshotHoldsWholeUpdatesOnly) {
  StoreTester ps(Job());
  const std::string dir = MakeCheckpointDir();
  std::atomic<bool> stop{false};
  // One slot: no addition can be lost, so a mix would show.
  std::thread pusher([&] {
    for (uint64_t sequence = 0; !stop; ++sequence) {
      ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, sequence, 0, 0), -1.0f).ok());
    }
  });
  const auto check = [&] {
    const auto result = ps.Snapshot(dir);
    ASSERT_TRUE(result.error.ok()) << result.error;
    ASSERT_EQ(result.replies.size(), 2u);
    const uint64_t contributions =
        result.replies[0].slot(0).next_sequence_min();
    const auto file = SafetensorsReader::Open(
        Files::Real(), dir + "/" + result.replies[1].file().name());
    ASSERT_TRUE(file.ok());
    std::vector<float> values(4096);
    ASSERT_TRUE((*file)
                    ->Read(*(*file)->Find("values"), 0, values.data(),
                           4096 * sizeof(float))
                    .ok());
    ASSERT_EQ(values, std::vector<float>(4096, float(contributions)));
  };
  for (int i = 0; i < 20 && !testing::Test::HasFailure(); ++i) {
    check();
  }
  stop = true;
  pusher.join();
}

}  // namespace
}  // namespace weir
