#include "tests/server/ps/consistency/consistency_contract.h"

#include <cmath>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

using absl::StatusCode;

// Two variables and a buffer in blocks of 64: "a" 70, "b" 20, "mean" 10. Block
// 0 is all of "a"'s first 64; block 1 has the rest of "a", "b", "mean".
Declaration Job(const std::string& update) {
  return ParseDeclaration(absl::StrCat(
      "variable { name: 'a' shape: 70 }"
      "variable { name: 'b' shape: 20 group: 1 }"
      "variable { name: 'mean' shape: 10 kind: BUFFER buffer_rate: 0.5 }"
      "group { optimizer { sgd {} } schedule { learning_rate: 1 } }"
      "group { optimizer { sgd { momentum: 0.5 } }"
      "        schedule { learning_rate: 2 } }"
      "update { ",
      update, " }"));
}

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

Receipt::Outcome OutcomeOf(const absl::StatusOr<Receipt>& receipt) {
  EXPECT_TRUE(receipt.ok()) << receipt.status();
  return receipt.ok() ? receipt->outcome() : Receipt::NONE;
}

// Sequence number `sequence` of slot 0 for `block`.
GradientChunk Contribution(const StoreTester& ps, uint64_t sequence,
                           int block) {
  return ps.Chunk(0, sequence, block, sequence);
}

TEST_P(ConsistencyContract, AppliesEachContributionOnceInOrder) {
  StoreTester ps(Job(GetParam()));
  ASSERT_EQ(ps.block_count(), 2);
  for (uint64_t sequence = 0; sequence < 5; ++sequence) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      for (int block = 0; block < 2; ++block) {
        EXPECT_EQ(
            OutcomeOf(ps.PushConstant(Contribution(ps, sequence, block), 1.0f)),
            repeat == 0 ? Receipt::ACCEPTED : Receipt::DUPLICATE);
      }
    }
    EXPECT_EQ(ps.Latest(0).version, sequence + 1);
    EXPECT_EQ(ps.Values(0), std::vector<float>(64, -float(sequence + 1)));
  }
  const PsStatus status = ps.store->GetStatus();
  EXPECT_EQ(status.chunks_accepted(), 10u);
  EXPECT_EQ(status.chunks_duplicate(), 20u);
  ASSERT_EQ(status.hello().slot_size(), 1);
  EXPECT_EQ(status.hello().slot(0).next_sequence_min(), 5u);
  EXPECT_EQ(status.hello().slot(0).next_sequence_max(), 5u);
}

TEST_P(ConsistencyContract, NamesTheExpectedContributionWhenOneIsSkipped) {
  StoreTester ps(Job(GetParam()));
  ASSERT_EQ(OutcomeOf(ps.PushConstant(Contribution(ps, 0, 1), 1.0f)),
            Receipt::ACCEPTED);
  const auto before = Bits(ps.Values(1));
  const auto receipt = ps.PushConstant(Contribution(ps, 3, 1), 1.0f);
  EXPECT_EQ(receipt.status().code(), StatusCode::kOutOfRange);
  EXPECT_TRUE(
      absl::StrContains(receipt.status().message(),
                        "slot 0 block 1: expected sequence number 1, got 3"))
      << receipt.status();
  EXPECT_EQ(Bits(ps.Values(1)), before);
  EXPECT_EQ(OutcomeOf(ps.PushConstant(Contribution(ps, 1, 1), 1.0f)),
            Receipt::ACCEPTED);
}

TEST_P(ConsistencyContract, AppliesSegmentsByTheirGroupsRules) {
  StoreTester ps(Job(GetParam()));
  for (uint64_t sequence = 0; sequence < 2; ++sequence) {
    ASSERT_EQ(OutcomeOf(ps.PushConstant(Contribution(ps, sequence, 1), 1.0f)),
              Receipt::ACCEPTED);
  }
  const std::vector<float> values = ps.Values(1);
  ASSERT_GE(values.size(), 6u + 20u + 10u);
  EXPECT_EQ(values[0], -2.0f);   // a: lr 1, two steps of 1
  EXPECT_EQ(values[5], -2.0f);   // a's last
  EXPECT_EQ(values[6], 0.0f);    // padding
  EXPECT_EQ(values[16], -5.0f);  // b: -2 (1) - 2 (1 + 0.5)
  EXPECT_EQ(values[48], 0.75f);  // mean: half the way to 1, twice
}

TEST_P(ConsistencyContract, CutsPayloadsAnywhere) {
  StoreTester whole(Job(GetParam()));
  std::vector<float> gradient(whole.elements(1));
  for (size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = 0.37f * static_cast<float>(i) - 3.0f;
  }
  for (const Encoding encoding : {F32, BF16, F16, INT8, TOP_K}) {
    StoreTester one(Job(GetParam()));
    GradientChunk chunk = Contribution(one, 0, 1);
    chunk.set_encoding(encoding);
    ASSERT_TRUE(one.Push(chunk, gradient).ok());
    for (size_t piece = 1; piece < 30; ++piece) {
      StoreTester cut(Job(GetParam()));
      ASSERT_EQ(OutcomeOf(cut.store->Push(
                    chunk, MakePayload(gradient, piece, encoding))),
                Receipt::ACCEPTED);
      EXPECT_EQ(Bits(cut.Values(1)), Bits(one.Values(1))) << piece;
    }
  }
}

TEST_P(ConsistencyContract, LeavesABlockWithNanUntouched) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    StoreTester ps(Job(GetParam()));
    ASSERT_TRUE(ps.PushConstant(Contribution(ps, 0, 1), 1.0f).ok());
    const auto before = Bits(ps.Values(1));
    std::vector<float> gradient(ps.elements(1), 1.0f);
    gradient[16 + 19] = bad;  // b's last
    const auto receipt = ps.Push(Contribution(ps, 1, 1), gradient);
    ASSERT_EQ(OutcomeOf(receipt), Receipt::LEFT_OUT);
    EXPECT_EQ(receipt->bad_variable(), 1u);
    EXPECT_EQ(Bits(ps.Values(1)), before);
    EXPECT_EQ(OutcomeOf(ps.Push(Contribution(ps, 1, 1), gradient)),
              Receipt::DUPLICATE);
    EXPECT_EQ(ps.store->GetStatus().chunks_left_out(), 1u);
    GradientChunk next = Contribution(ps, 2, 1);
    next.mutable_push()->set_base_version(ps.Latest(1).version);
    ASSERT_EQ(OutcomeOf(ps.PushConstant(next, 1.0f)), Receipt::ACCEPTED);
    EXPECT_EQ(ps.Values(1)[16], -5.0f);  // as if the bad one had not been
  }
}

TEST_P(ConsistencyContract, DoesNotLookAtWhatIsLeftOut) {
  StoreTester ps(Job(GetParam()));
  GradientChunk chunk = Contribution(ps, 0, 1);
  chunk.mutable_push()->add_left_out(1);
  std::vector<float> gradient(ps.elements(1), 1.0f);
  gradient[16] = INFINITY;      // b, left out
  gradient[6] = std::nanf("");  // padding
  ASSERT_EQ(OutcomeOf(ps.Push(chunk, gradient)), Receipt::ACCEPTED);
  EXPECT_EQ(ps.Values(1)[16], 0.0f);
  EXPECT_EQ(ps.Values(1)[0], -1.0f);
  EXPECT_EQ(ps.Values(1)[6], 0.0f);
}

TEST_P(ConsistencyContract, TakesARunWithoutPayloadAsLeftOut) {
  StoreTester ps(Job(GetParam()));
  GradientChunk run = Contribution(ps, 0, 0);
  run.set_block_count(2);
  ASSERT_EQ(OutcomeOf(ps.store->Push(run, Payload())), Receipt::ACCEPTED);
  ASSERT_EQ(OutcomeOf(ps.store->Push(run, Payload())), Receipt::DUPLICATE);
  GradientChunk zero = Contribution(ps, 1, 0);
  zero.mutable_push()->set_weight(0.0f);
  zero.mutable_push()->set_base_version(ps.Latest(0).version);
  ASSERT_EQ(OutcomeOf(ps.PushConstant(zero, 1.0f)), Receipt::ACCEPTED);
  EXPECT_EQ(ps.Values(0), std::vector<float>(64, 0.0f));
  GradientChunk third = Contribution(ps, 2, 0);
  third.mutable_push()->set_base_version(ps.Latest(0).version);
  EXPECT_EQ(OutcomeOf(ps.PushConstant(third, 1.0f)), Receipt::ACCEPTED);
  EXPECT_EQ(ps.Values(0), std::vector<float>(64, -1.0f));
}

TEST_P(ConsistencyContract, TakesHyperParametersFromThePush) {
  StoreTester ps(Job(GetParam()));
  GradientChunk chunk = Contribution(ps, 0, 1);
  Hyper* const hyper = chunk.mutable_push()->add_hyper();
  hyper->set_group(0);
  hyper->set_learning_rate(8.0);
  ASSERT_EQ(OutcomeOf(ps.PushConstant(chunk, 1.0f)), Receipt::ACCEPTED);
  EXPECT_EQ(ps.Values(1)[0], -8.0f);
  EXPECT_EQ(ps.Values(1)[16], -2.0f);  // the other group's schedule stays
}

TEST_P(ConsistencyContract, TakesTheMomentumFromThePush) {
  StoreTester ps(Job(GetParam()));
  for (uint64_t sequence = 0; sequence < 2; ++sequence) {
    GradientChunk chunk = Contribution(ps, sequence, 1);
    Hyper* const hyper = chunk.mutable_push()->add_hyper();
    hyper->set_group(1);
    hyper->set_momentum(0.25);
    ASSERT_EQ(OutcomeOf(ps.PushConstant(chunk, 1.0f)), Receipt::ACCEPTED);
  }
  EXPECT_EQ(ps.Values(1)[16], -2.0f - 2.0f * 1.25f);
  ASSERT_EQ(OutcomeOf(ps.PushConstant(Contribution(ps, 2, 1), 1.0f)),
            Receipt::ACCEPTED);
  // the optimizer's own again
  EXPECT_EQ(ps.Values(1)[16], -4.5f - 2.0f * 1.625f);
}

TEST_P(ConsistencyContract, RefusesForeignSendersAndChangesNothing) {
  StoreTester ps(Job(GetParam()));
  ASSERT_TRUE(ps.SetSlot(0, 3, false).ok());
  const auto refused = [&](const Sender& sender, StatusCode code,
                           const std::string& words) {
    GradientChunk chunk = Contribution(ps, 0, 0);
    *chunk.mutable_sender() = sender;
    const auto receipt = ps.PushConstant(chunk, 1.0f);
    EXPECT_EQ(receipt.status().code(), code) << receipt.status();
    EXPECT_TRUE(absl::StrContains(receipt.status().message(), words))
        << receipt.status();
  };
  Sender sender = ps.SenderOf(0, 3);
  sender.set_job("other");
  refused(sender, StatusCode::kFailedPrecondition, "'other'");
  sender = ps.SenderOf(0, 3);
  sender.set_history(99);
  refused(sender, StatusCode::kFailedPrecondition, "history");
  sender = ps.SenderOf(0, 3);
  sender.set_layout_fingerprint(99);
  refused(sender, StatusCode::kFailedPrecondition, "layout");
  refused(ps.SenderOf(0, 2), StatusCode::kPermissionDenied,
          "slot 0 generation 2 was replaced by 3");
  refused(ps.SenderOf(0, 4), StatusCode::kPermissionDenied, "never granted");
  refused(ps.SenderOf(0, 0), StatusCode::kPermissionDenied, "may pull");
  refused(ps.SenderOf(1, 3), StatusCode::kInvalidArgument, "slot 1 of 1");
  EXPECT_EQ(ps.Latest(0).version, 0u);
  EXPECT_EQ(ps.store->Hello().slot(0).next_sequence_max(), 0u);
}

TEST_P(ConsistencyContract, RefusesWhatDoesNotFit) {
  StoreTester ps(Job(GetParam()));
  const auto refused = [&](const GradientChunk& chunk, size_t count) {
    const auto receipt = ps.Push(chunk, std::vector<float>(count, 1.0f));
    EXPECT_EQ(receipt.status().code(), StatusCode::kInvalidArgument)
        << receipt.status();
  };
  refused(Contribution(ps, 0, 0), 63);
  refused(Contribution(ps, 0, 0), 65);
  GradientChunk chunk = Contribution(ps, 0, 0);
  chunk.set_block(2);
  refused(chunk, 0);
  chunk.set_block(UINT32_MAX);
  chunk.set_block_count(UINT32_MAX);
  refused(chunk, 0);
  chunk = Contribution(ps, 0, 0);
  chunk.set_block_count(2);
  refused(chunk, 64);
  chunk = Contribution(ps, 0, 0);
  chunk.mutable_push()->set_weight(-1.0f);
  refused(chunk, 64);
  chunk.mutable_push()->set_weight(std::nanf(""));
  refused(chunk, 64);
  chunk = Contribution(ps, 0, 0);
  chunk.mutable_push()->add_left_out(3);
  refused(chunk, 64);
  chunk = Contribution(ps, 0, 0);
  chunk.mutable_push()->add_hyper()->set_group(2);
  refused(chunk, 64);
  chunk = Contribution(ps, 0, 0);
  chunk.mutable_push()->add_hyper()->set_learning_rate(std::nan(""));
  refused(chunk, 64);
  chunk = Contribution(ps, 0, 0);
  chunk.mutable_push()->add_hyper()->set_momentum(0.5);  // sgd {}
  refused(chunk, 64);
  chunk = Contribution(ps, 0, 0);
  chunk.mutable_push()->set_base_version(1);  // from a version to come
  refused(chunk, 64);
  EXPECT_EQ(ps.Latest(0).version, 0u);
  EXPECT_EQ(ps.store->Hello().slot(0).next_sequence_max(), 0u);
}

TEST_P(ConsistencyContract, KeepsFrozenVariablesAndTheirSteps) {
  Declaration declaration = Job(GetParam());
  declaration.mutable_group(1)->set_frozen(true);
  StoreTester ps(declaration);
  ASSERT_TRUE(ps.PushConstant(Contribution(ps, 0, 1), 1.0f).ok());
  EXPECT_EQ(ps.Values(1)[16], 0.0f);
  EXPECT_EQ(ps.Values(1)[0], -1.0f);
}

TEST_P(ConsistencyContract, APulledBlockNeverChanges) {
  if (std::string(GetParam()).find("lock_free") != std::string::npos) {
    GTEST_SKIP() << "lock_free readers may see a mix";
  }
  StoreTester ps(Job(GetParam()));
  const PulledBlock held = ps.Latest(0);
  for (uint64_t sequence = 0; sequence < 4; ++sequence) {
    ASSERT_TRUE(ps.PushConstant(Contribution(ps, sequence, 0), 1.0f).ok());
  }
  for (int64_t i = 0; i < held.values.elements(); ++i) {
    ASSERT_EQ(held.values.data()[i], 0.0f);
  }
  EXPECT_EQ(ps.Values(0), std::vector<float>(64, -4.0f));
}

}  // namespace
}  // namespace weir
