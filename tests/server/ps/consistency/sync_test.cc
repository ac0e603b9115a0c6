#include "server/ps/consistency/sync.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/io/safetensors.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/server/ps/consistency/consistency_contract.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

using absl::StatusCode;

INSTANTIATE_TEST_SUITE_P(Sync, ConsistencyContract,
                         testing::Values("sync { contributions: 1 }"));

// One slot per contribution; blocks of 64.
Declaration Job(int contributions, const std::string& more = "") {
  return ParseDeclaration(absl::StrCat(
      "variable { name: 'a' shape: 64 } variable { name: 'b' shape: 64 }"
      "group { optimizer { sgd {} } schedule { learning_rate: 0.125 } }"
      "update { sync { contributions: ",
      contributions, " } } slot_count: ", contributions, more));
}

std::vector<float> RandomGradient(std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> gradient(64);
  for (float& g : gradient) {
    g = normal(random);
  }
  return gradient;
}

// The definition, in index order, one float operation at a time.
void NaiveStep(const std::vector<std::vector<float>>& gradients,
               const std::vector<float>& weights, std::vector<float>* values) {
  for (size_t i = 0; i < values->size(); ++i) {
    float sum = weights[0] * gradients[0][i];
    double total = weights[0];
    for (size_t m = 1; m < gradients.size(); ++m) {
      const float term = weights[m] * gradients[m][i];
      sum = sum + term;
      total += weights[m];
    }
    const float mean = sum / static_cast<float>(total);
    const float step = -0.125f * mean;
    (*values)[i] = (*values)[i] + step;
  }
}

TEST(SyncModeTest, HasTheSameBitsForAnyArrivalOrder) {
  std::mt19937 random(1);
  for (int n = 1; n <= 8; ++n) {
    for (int round = 0; round < 20; ++round) {
      // Room for one early payload only, so that some are deferred.
      StoreTester ps(Job(n, " out_of_order_bytes: 300"));
      std::vector<float> expected(64, 0.0f);
      for (uint64_t step = 0; step < 3; ++step) {
        std::vector<std::vector<float>> gradients;
        std::vector<float> weights;
        for (int m = 0; m < n; ++m) {
          gradients.push_back(RandomGradient(random));
          weights.push_back(float(1 + random() % 7));
        }
        NaiveStep(gradients, weights, &expected);
        std::vector<int> order;
        for (int m = 0; m < n; ++m) {
          order.insert(order.end(), 1 + random() % 3, m);  // duplicates
        }
        while (ps.Latest(0).version == step) {
          std::shuffle(order.begin(), order.end(), random);
          for (const int m : order) {
            GradientChunk chunk = ps.Chunk(m, step, 0, step, m);
            chunk.mutable_push()->set_weight(weights[m]);
            ASSERT_TRUE(ps.Push(chunk, gradients[m]).ok());
          }
        }
        ASSERT_EQ(ps.Latest(0).version, step + 1);
      }
      ASSERT_EQ(ps.Values(0), expected) << n;
      EXPECT_EQ(ps.store->GetStatus().out_of_order_bytes(), 0u);
    }
  }
}

TEST(SyncModeTest, DefersOverTheBoundButNeverTheOneAtTheCursor) {
  StoreTester ps(Job(4, " out_of_order_bytes: 256"));
  const auto push = [&](int m) {
    return ps.PushConstant(ps.Chunk(m, 0, 0, 0, m), float(m))->outcome();
  };
  EXPECT_EQ(push(3), Receipt::ACCEPTED);
  EXPECT_EQ(ps.store->GetStatus().out_of_order_bytes(), 256u);
  EXPECT_EQ(push(2), Receipt::DEFERRED);
  EXPECT_EQ(push(3), Receipt::DUPLICATE);
  // Without a payload there is nothing to keep.
  EXPECT_EQ(ps.store->Push(ps.Chunk(1, 0, 0, 0, 1), Payload())->outcome(),
            Receipt::ACCEPTED);
  EXPECT_EQ(push(0), Receipt::ACCEPTED);
  EXPECT_EQ(ps.Latest(0).version, 0u);
  EXPECT_EQ(push(2), Receipt::ACCEPTED);
  EXPECT_EQ(ps.Latest(0).version, 1u);
  EXPECT_EQ(ps.store->GetStatus().out_of_order_bytes(), 0u);
  EXPECT_EQ(ps.store->GetStatus().chunks_deferred(), 1u);
  EXPECT_EQ(ps.Values(0)[0], -0.125f * (0 + 2 + 3) / 3);
}

TEST(SyncModeTest, TheFirstResultOfAContributionWins) {
  StoreTester ps(Job(2));
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 0, 0, 0, 0), 1.0f).ok());
  // Slot 1 computed contribution 0, too: its push counts as done.
  EXPECT_EQ(ps.PushConstant(ps.Chunk(1, 0, 0, 0, 0), 1.0f)->outcome(),
            Receipt::DUPLICATE);
  EXPECT_EQ(ps.PushConstant(ps.Chunk(1, 1, 0, 0, 1), 3.0f)->outcome(),
            Receipt::ACCEPTED);
  EXPECT_EQ(ps.Values(0)[0], -0.25f);
}

TEST(SyncModeTest, AResultThatComesAfterItsStepIsADuplicate) {
  StoreTester ps(Job(2));
  // Slot 0 brings both contributions of the first step.
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 0, 0, 0, 0), 1.0f).ok());
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 1, 0, 0, 1), 3.0f).ok());
  ASSERT_EQ(ps.Latest(0).version, 1u);
  const auto late = ps.PushConstant(ps.Chunk(1, 0, 0, 0, 1), 3.0f);
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->outcome(), Receipt::DUPLICATE);
  EXPECT_EQ(ps.Values(0)[0], -0.25f);
  // Slot 1 goes on with its next contribution.
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 2, 0, 1, 0), 1.0f).ok());
  EXPECT_EQ(ps.PushConstant(ps.Chunk(1, 1, 0, 1, 1), 3.0f)->outcome(),
            Receipt::ACCEPTED);
  EXPECT_EQ(ps.Latest(0).version, 2u);
}

TEST(SyncModeTest, RefusesAnotherVersion) {
  StoreTester ps(Job(1));
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 0, 0, 0), 1.0f).ok());
  const auto receipt = ps.PushConstant(ps.Chunk(0, 1, 0, 2), 1.0f);
  EXPECT_EQ(receipt.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(
      absl::StrContains(receipt.status().message(), "the block is at 1"));
  EXPECT_EQ(ps.PushConstant(ps.Chunk(0, 0, 0, 0), 1.0f)->outcome(),
            Receipt::DUPLICATE);
  EXPECT_EQ(ps.PushConstant(ps.Chunk(0, 1, 0, 1, 1), 1.0f).status().code(),
            StatusCode::kInvalidArgument);  // contribution 1 of 1
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

TEST(SyncModeTest, AVersionToComeIsParkedUntilItIsPublished) {
  StoreTester ps(Job(2));
  const auto wanted = ps.Pull(0, 0, VersionWant(1));
  const auto in_vain = ps.Pull(0, 0, VersionWant(9, /*timeout_ms=*/50));
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(1, 0, 0, 0, 1), 1.0f).ok());
  EXPECT_FALSE(wanted->done);
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 0, 0, 0, 0), 1.0f).ok());
  ASSERT_TRUE(wanted->done);
  EXPECT_EQ(wanted->answer->version, 1u);
  EXPECT_EQ(wanted->answer->values.data()[0], -0.125f);
  EXPECT_FALSE(in_vain->done);
  ps.clock.Advance(std::chrono::milliseconds(50));
  ps.store->ExpireWaits();
  ASSERT_TRUE(in_vain->done);
  EXPECT_TRUE(in_vain->answer->not_yet);
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
  const std::string dir = MakeTempDir();
  const auto push = [&](uint64_t step, int block) {
    ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, step, block, step), 1.0f).ok());
  };
  push(0, 0);
  std::vector<SnapshotReply> replies;
  SnapshotRequest request;
  *request.mutable_sender() = ps.SenderOf(0, 0);
  request.set_directory(dir);
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
  const std::string dir = MakeTempDir();
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
  EXPECT_TRUE(ps.Snapshot(dir, 2).error.ok());
  push(0, 2, 0);
  // Version 2 is everywhere: nobody needs 1 any more.
  EXPECT_EQ(ps.Snapshot(dir, 1).error.code(), StatusCode::kOutOfRange);
}

// Its optimizer's state at that version is gone.
TEST(SyncModeTest, ABlockWithStateIsFrozenAtItsOwnVersionOnly) {
  StoreTester ps(ParseDeclaration(
      "variable { name: 'a' shape: 64 }"
      "group { optimizer { adam {} } schedule { learning_rate: 1 } }"
      "update { sync { contributions: 1 } }"));
  ASSERT_TRUE(ps.PushConstant(ps.Chunk(0, 0, 0, 0), 1.0f).ok());
  const std::string dir = MakeTempDir();
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
  const auto result = ps.Snapshot(MakeTempDir(), 1);
  ASSERT_EQ(result.replies.size(), 2u);
  EXPECT_EQ(result.replies[0].slot(0).next_sequence_max(), 1u);
}

}  // namespace
}  // namespace weir
