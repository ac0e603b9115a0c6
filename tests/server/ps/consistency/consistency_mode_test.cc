#include "server/ps/consistency/consistency_mode.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

// Shows what the members share.
class Probe : public ConsistencyMode {
 public:
  using ConsistencyMode::Current;
  using ConsistencyMode::IsNextSequence;
  using ConsistencyMode::MakeReceipt;
};

std::shared_ptr<const ShardPlan> Plan() {
  return *ShardPlan::Create(
      ParseDeclaration("variable { name: 'a' shape: 8 } slot_count: 2 "
                       "group { optimizer { sgd {} }"
                       "        schedule { learning_rate: 1 } }"
                       "update { async {} }"),
      0, int64_t{1} << 30);
}

absl::StatusOr<bool> Ask(const Block& block, int slot, uint64_t sequence) {
  ::weir::Push push;
  push.set_sequence(sequence);
  MutexLock lock(&block.mutex);
  return Probe::IsNextSequence(block, {slot, &push, Payload()});
}

TEST(ConsistencyModeTest, ComparesASequenceNumberWithTheSlotsOwnMark) {
  const auto plan = Plan();
  Block block(&plan->blocks()[0], 0, 2);
  {
    MutexLock lock(&block.mutex);
    block.marks = {3, 0};
  }
  EXPECT_TRUE(*Ask(block, 0, 3));
  EXPECT_FALSE(*Ask(block, 0, 2));
  EXPECT_FALSE(*Ask(block, 0, 0));
  EXPECT_TRUE(*Ask(block, 1, 0));
  const absl::Status skipped = Ask(block, 0, 4).status();
  EXPECT_EQ(skipped.code(), absl::StatusCode::kOutOfRange);
  EXPECT_NE(skipped.message().find("expected sequence number 3"),
            std::string::npos);
}

TEST(ConsistencyModeTest, AReceiptNamesItsSequenceNumber) {
  ::weir::Push push;
  push.set_sequence(9);
  const Receipt receipt =
      Probe::MakeReceipt({0, &push, Payload()}, Receipt::LEFT_OUT);
  EXPECT_EQ(receipt.sequence(), 9u);
  EXPECT_EQ(receipt.outcome(), Receipt::LEFT_OUT);
}

TEST(ConsistencyModeTest, TheCurrentAnswerSharesTheBlocksBuffer) {
  const auto plan = Plan();
  Block block(&plan->blocks()[0], 5, 2);
  MutexLock lock(&block.mutex);
  block.values = BlockRef::Make(Arena::Heap(), 8);
  const PulledBlock pulled = Probe::Current(block);
  EXPECT_EQ(pulled.version, 5u);
  EXPECT_FALSE(pulled.not_yet);
  EXPECT_EQ(pulled.values.data(), block.values.data());
  EXPECT_FALSE(block.values.unique());
}

}  // namespace
}  // namespace weir
