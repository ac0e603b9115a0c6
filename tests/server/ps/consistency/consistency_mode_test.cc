#include "server/ps/consistency/consistency_mode.h"

#include <atomic>
#include <memory>

#include "gtest/gtest.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

std::shared_ptr<const ShardPlan> Plan() {
  return *ShardPlan::Create(
      ParseDeclaration("variable { name: 'a' shape: 8 } slot_count: 2 "
                       "group { optimizer { sgd {} }"
                       "        schedule { learning_rate: 1 } }"
                       "update { sync { contributions: 2 } } base_version: 5"),
      0, int64_t{1} << 30);
}

::weir::Push PushOf(uint64_t sequence) {
  ::weir::Push push;
  push.set_sequence(sequence);
  return push;
}

TEST(ConsistencyModeTest, AReceiptNamesItsSequenceNumber) {
  const Receipt receipt = MakeReceipt(PushOf(9), Receipt::DEFERRED);
  EXPECT_EQ(receipt.sequence(), 9u);
  EXPECT_EQ(receipt.outcome(), Receipt::DEFERRED);
}

TEST(ConsistencyModeTest, WhatCountsIsAcceptedUnlessANumberIsBad) {
  EXPECT_EQ(MakeCountedReceipt(PushOf(9), -1).outcome(), Receipt::ACCEPTED);
  const Receipt receipt = MakeCountedReceipt(PushOf(9), 3);
  EXPECT_EQ(receipt.sequence(), 9u);
  EXPECT_EQ(receipt.outcome(), Receipt::LEFT_OUT);
  EXPECT_EQ(receipt.bad_variable(), 3u);
}

TEST(ConsistencyModeTest, TheCurrentAnswerSharesTheBlocksBuffer) {
  ShardContext context(Plan(), Arena::Heap());
  const std::unique_ptr<ConsistencyMode> mode = CreateConsistencyMode(&context);
  std::atomic<int64_t> waits{0};
  Block block(&context.plan->blocks()[0], 5, 2, &waits);
  MutexLock lock(&block.mutex);
  block.values = BlockRef::Make(Arena::Heap(), 8);
  const auto pulled = mode->Answer(block, LatestWant());
  ASSERT_TRUE(pulled.ok() && pulled->has_value()) << pulled.status();
  EXPECT_EQ((*pulled)->version, 5u);
  EXPECT_FALSE((*pulled)->not_yet);
  EXPECT_EQ((*pulled)->values.data(), block.values.data());
  EXPECT_FALSE(block.values.unique());
}

TEST(ConsistencyModeTest, TheVersionBeforeIsReadWhileItsBufferIsKept) {
  ShardContext context(Plan(), Arena::Heap());
  const std::unique_ptr<ConsistencyMode> mode = CreateConsistencyMode(&context);
  std::atomic<int64_t> waits{0};
  Block block(&context.plan->blocks()[0], 6, 2, &waits);
  MutexLock lock(&block.mutex);
  block.values = BlockRef::Make(Arena::Heap(), 8);
  const auto ask = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return mode->Answer(block, VersionWant(5));
  };
  EXPECT_EQ(ask().status().code(), absl::StatusCode::kAborted);
  block.previous.version = 5;
  block.previous.values = BlockRef::Make(Arena::Heap(), 8);
  ASSERT_TRUE(ask().ok());
  EXPECT_EQ((*ask())->values.data(), block.previous.values.data());
  RaiseTo(&context.oldest_readable, 6);
  EXPECT_EQ(ask().status().code(), absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace weir
