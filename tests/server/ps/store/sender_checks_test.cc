#include "server/ps/store/sender_checks.h"

#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

using absl::StatusCode;

constexpr int64_t kMemory = int64_t{1} << 30;

// Three blocks of 64 elements; group 1 is frozen.
std::shared_ptr<const ShardPlan> Plan() {
  return *ShardPlan::Create(
      ParseDeclaration(
          "variable { name: 'a' shape: 128 }"
          "variable { name: 'b' shape: 64 group: 1 }"
          "group { name: 'main' optimizer { sgd { momentum: 0.9 } }"
          "        schedule { learning_rate: 1 } }"
          "group { name: 'still' frozen: true }"
          "update { async {} }"),
      0, kMemory);
}

Sender SenderOf(const ShardPlan& plan, uint32_t slot, uint32_t generation) {
  Sender sender;
  sender.set_job("test");
  sender.set_history(1);
  sender.set_layout_fingerprint(plan.layout().fingerprint());
  sender.set_slot(slot);
  sender.set_generation(generation);
  return sender;
}

GradientChunk ChunkOf(uint32_t block, uint32_t count) {
  GradientChunk chunk;
  chunk.set_block(block);
  chunk.set_block_count(count);
  chunk.mutable_push()->set_sequence(0);
  return chunk;
}

TEST(SenderChecksTest, RefusesAnotherJobHistoryOrLayoutAndNamesBoth) {
  const auto plan = Plan();
  const Sender good = SenderOf(*plan, 0, 1);
  EXPECT_TRUE(CheckSender(*plan, good).ok());

  Sender job = good;
  job.set_job("other");
  EXPECT_EQ(CheckSender(*plan, job).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(
      absl::StrContains(CheckSender(*plan, job).message(), "'test', not"));

  Sender history = good;
  history.set_history(0x2a);
  EXPECT_EQ(CheckSender(*plan, history).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_TRUE(
      absl::StrContains(CheckSender(*plan, history).message(), "not 2a"));

  Sender layout = good;
  layout.set_layout_fingerprint(good.layout_fingerprint() + 1);
  EXPECT_EQ(CheckSender(*plan, layout).code(), StatusCode::kFailedPrecondition);
}

TEST(SenderChecksTest, OnlyTheHolderOfTheCapabilitySpeaksForASlot) {
  const auto plan = Plan();
  std::vector<SlotState> slots(2);
  slots[1].generation = 3;
  slots[1].capability_high = 70;
  slots[1].capability_low = 71;
  Sender sender = SenderOf(*plan, 1, 3);
  EXPECT_EQ(CheckGeneration(slots, sender).code(),
            StatusCode::kPermissionDenied);
  sender.set_capability_high(70);
  EXPECT_EQ(CheckGeneration(slots, sender).code(),
            StatusCode::kPermissionDenied);
  sender.set_capability_low(71);
  EXPECT_TRUE(CheckGeneration(slots, sender).ok());
  // The generation after it has another one.
  slots[1].generation = 4;
  sender.set_generation(4);
  slots[1].capability_low = 72;
  EXPECT_EQ(CheckGeneration(slots, sender).code(),
            StatusCode::kPermissionDenied);
  // A reader shows none, and may not push.
  EXPECT_TRUE(CheckGeneration(slots, SenderOf(*plan, 1, 0)).ok());
}

TEST(SenderChecksTest, TellsAChiefThatWasReplacedFromAWorkerThatIsLate) {
  const auto plan = Plan();
  Sender chief = SenderOf(*plan, 0, 0);
  EXPECT_TRUE(CheckChief(*plan, chief).ok());
  chief.set_history(2);
  EXPECT_EQ(CheckChief(*plan, chief).code(), StatusCode::kPermissionDenied);
  // A worker that retires its slot names its generation.
  chief.set_generation(1);
  EXPECT_EQ(CheckChief(*plan, chief).code(), StatusCode::kFailedPrecondition);
  // Another job is not this chief's affair at all.
  chief.set_generation(0);
  chief.set_job("other");
  EXPECT_EQ(CheckChief(*plan, chief).code(), StatusCode::kFailedPrecondition);
}

TEST(SenderChecksTest, OnlyTheGrantedGenerationMayPush) {
  const auto plan = Plan();
  std::vector<SlotState> slots(2);
  slots[1].generation = 3;
  const auto push = [&](uint32_t slot, uint32_t generation) {
    return CheckPusher(slots, true, SenderOf(*plan, slot, generation)).code();
  };
  EXPECT_EQ(push(1, 3), StatusCode::kOk);
  EXPECT_EQ(push(1, 2), StatusCode::kPermissionDenied);
  EXPECT_EQ(push(1, 4), StatusCode::kPermissionDenied);
  EXPECT_EQ(push(2, 3), StatusCode::kInvalidArgument);
  EXPECT_EQ(push(1, 0), StatusCode::kPermissionDenied);
  // A reader needs no slot, not even one that exists.
  EXPECT_TRUE(CheckGeneration(slots, SenderOf(*plan, 7, 0)).ok());
  EXPECT_EQ(CheckPusher(slots, false, SenderOf(*plan, 1, 3)).code(),
            StatusCode::kFailedPrecondition);
}

TEST(SenderChecksTest, ARunOfBlocksEndsInTheShardAndBringsNoPayload) {
  const auto plan = Plan();
  ASSERT_EQ(plan->blocks().size(), 3u);
  EXPECT_TRUE(CheckPush(*plan, ChunkOf(0, 3), Payload()).ok());
  EXPECT_TRUE(CheckPush(*plan, ChunkOf(2, 0), Payload()).ok());
  EXPECT_FALSE(CheckPush(*plan, ChunkOf(1, 3), Payload()).ok());
  EXPECT_FALSE(CheckPush(*plan, ChunkOf(3, 1), Payload()).ok());
  // The sum of the two fields does not fit into 32 bits.
  EXPECT_FALSE(CheckPush(*plan, ChunkOf(2, UINT32_MAX), Payload()).ok());
  const Payload one = MakePayload({1.0f});
  EXPECT_TRUE(CheckPush(*plan, ChunkOf(1, 1), one).ok());
  EXPECT_FALSE(CheckPush(*plan, ChunkOf(1, 2), one).ok());
}

TEST(SenderChecksTest, RefusesNumbersThatAnOptimizerCannotTake) {
  const auto plan = Plan();
  const auto with_weight = [&](float weight) {
    GradientChunk chunk = ChunkOf(0, 1);
    chunk.mutable_push()->set_weight(weight);
    return CheckPush(*plan, chunk, Payload()).ok();
  };
  EXPECT_TRUE(with_weight(0.0f));
  EXPECT_TRUE(with_weight(2.5f));
  EXPECT_FALSE(with_weight(-1.0f));
  EXPECT_FALSE(with_weight(std::nanf("")));
  EXPECT_FALSE(with_weight(std::numeric_limits<float>::infinity()));

  GradientChunk left_out = ChunkOf(0, 1);
  left_out.mutable_push()->add_left_out(1);
  EXPECT_TRUE(CheckPush(*plan, left_out, Payload()).ok());
  left_out.mutable_push()->add_left_out(2);
  EXPECT_FALSE(CheckPush(*plan, left_out, Payload()).ok());

  const auto with_rate = [&](uint32_t group, double rate) {
    GradientChunk chunk = ChunkOf(0, 1);
    Hyper* const hyper = chunk.mutable_push()->add_hyper();
    hyper->set_group(group);
    hyper->set_learning_rate(rate);
    return CheckPush(*plan, chunk, Payload()).ok();
  };
  EXPECT_TRUE(with_rate(0, 0.5));
  EXPECT_TRUE(with_rate(1, 0.5));
  EXPECT_FALSE(with_rate(2, 0.5));
  EXPECT_FALSE(with_rate(0, -0.5));
  EXPECT_FALSE(with_rate(0, std::nan("")));
}

TEST(SenderChecksTest, AsksTheOptimizerWhetherItKeepsAMomentum) {
  const auto plan = Plan();
  GradientChunk chunk = ChunkOf(0, 1);
  Hyper* const hyper = chunk.mutable_push()->add_hyper();
  hyper->set_momentum(0.5);
  EXPECT_TRUE(CheckPush(*plan, chunk, Payload()).ok());
  hyper->set_momentum(-0.5);
  EXPECT_TRUE(absl::StrContains(CheckPush(*plan, chunk, Payload()).message(),
                                "settings of group 0 'main'.momentum"));
  // Nobody reads the momentum of a group that is frozen.
  hyper->set_group(1);
  EXPECT_TRUE(CheckPush(*plan, chunk, Payload()).ok());
}

}  // namespace
}  // namespace weir
