#include "client/cc/parameters/parameter_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/math/random.h"
#include "tests/support/fake_shards.h"

namespace weir {
namespace {

Layout MakeLayout(int shards, int64_t block_elements = 64) {
  std::vector<VariableSpec> variables(4);
  const int64_t sizes[] = {100, 1000, 30, 500};
  for (int v = 0; v < 4; ++v) {
    variables[v].name = "v" + std::to_string(v);
    variables[v].shape = {sizes[v]};
  }
  return Layout::Create(std::move(variables), shards, block_elements).value();
}

// A worker: its buffers and its client.
struct Worker {
  Worker(FakeShards* shards, const Layout* layout, uint32_t slot,
         int lost_after_ms = 5000, int channels = 1) {
    sender.set_slot(slot);
    sender.set_generation(1);
    parameters.resize(layout->flat_elements());
    gradients.resize(layout->flat_elements());
    ParameterClient::Options options;
    options.transport = shards;
    options.addresses = shards->addresses();
    options.layout = layout;
    options.parameters = parameters.data();
    options.gradients = gradients.data();
    options.lost_after = std::chrono::milliseconds(lost_after_ms);
    options.channels_per_peer = channels;
    client = ParameterClient::Create(std::move(options)).value();
  }

  // Waits until `bytes` of values have come since the client was made.
  bool HasReceived(uint64_t bytes) const {
    for (int i = 0; i < 5000; ++i) {
      if (client->counters().bytes_received == bytes) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  // Pushes contribution `contribution` with `gradient` everywhere; last layer
  // first.
  absl::Status Push(uint64_t sequence, float gradient,
                    const std::optional<Want>& want) {
    ContributionPush push;
    push.sender = sender;
    push.sequence = sequence;
    push.index_in_step = contribution;
    push.then = want;
    absl::Status status = client->BeginContribution(push);
    if (!status.ok()) {
      return status;
    }
    std::fill(gradients.begin(), gradients.end(), gradient);
    for (int v = 3; v >= 0; --v) {
      client->GradientReady(v);
    }
    status = client->FinishContribution();
    if (!status.ok()) {
      return status;
    }
    result = client->WaitReceipts();
    return result.status();
  }

  Sender sender;
  std::vector<float> parameters;
  std::vector<float> gradients;
  uint32_t contribution = 0;
  absl::StatusOr<ContributionResult> result;
  std::unique_ptr<ParameterClient> client;
};

Want Latest() {
  Want want;
  want.set_latest(true);
  return want;
}

Want Version(uint64_t version) {
  Want want;
  want.set_version(version);
  return want;
}

void ExpectAll(const std::vector<float>& values, float expected) {
  for (const float value : values) {
    ASSERT_EQ(value, expected);
  }
}

TEST(ParameterClientTest, PushesAndPullsOverSeveralShards) {
  for (const int shard_count : {1, 2, 3}) {
    const Layout layout = MakeLayout(shard_count);
    FakeShards shards({.layout = &layout});
    Worker worker(&shards, &layout, 0);
    ASSERT_TRUE(worker.client->StartPull(worker.sender, Latest()).ok());
    ASSERT_TRUE(worker.client->WaitPull().ok());
    ExpectAll(worker.parameters, 0.0f);
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(worker.Push(i, 1.0f, Latest()).ok());
      ASSERT_TRUE(worker.client->WaitPull().ok());
      ExpectAll(worker.parameters, static_cast<float>(i + 1));
    }
    EXPECT_EQ(worker.client->counters().bytes_sent,
              static_cast<uint64_t>(layout.flat_elements()) * 4 * 5);
  }
}

TEST(ParameterClientTest,
     EveryContributionCountsExactlyOnceThroughRandomBreaks) {
  const Layout layout = MakeLayout(2);
  RandomStream random(7);
  std::atomic<int> breaks{0};
  FakeShards::Options options{.layout = &layout};
  options.fault = [&](int, const GradientChunk&) {
    // Among 60 messages about 1 is lost, 1 loses its answer, and 4 are
    // deferred.
    const uint32_t draw = random.NextBelow(60);
    if (draw == 0) {
      ++breaks;
      return Fault::kBreakBefore;
    }
    if (draw == 1) {
      ++breaks;
      return Fault::kBreakAfter;
    }
    if (draw < 6) {
      return Fault::kDefer;
    }
    return Fault::kNone;
  };
  FakeShards shards(options);
  constexpr int kWorkers = 3;
  constexpr int kContributions = 8;
  std::vector<std::thread> threads;
  for (uint32_t w = 0; w < kWorkers; ++w) {
    threads.emplace_back([&, w] {
      Worker worker(&shards, &layout, w);
      EXPECT_TRUE(worker.client->StartPull(worker.sender, Latest()).ok());
      for (int i = 0; i < kContributions; ++i) {
        EXPECT_TRUE(worker.client->WaitPull().ok());
        EXPECT_TRUE(worker.Push(i, 1.0f, Latest()).ok());
      }
      EXPECT_TRUE(worker.client->WaitPull().ok());
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_GT(breaks, 5);
  EXPECT_GT(shards.duplicates(), 0u);
  for (int s = 0; s < 2; ++s) {
    for (int b = 0; b < layout.block_count(s); ++b) {
      ExpectAll(shards.values(s, b), kWorkers * kContributions);
    }
  }
}

TEST(ParameterClientTest, SyncStepsWaitForEveryContribution) {
  const Layout layout = MakeLayout(2);
  FakeShards shards({.layout = &layout, .contributions = 2});
  constexpr int kSteps = 6;
  std::vector<std::thread> threads;
  for (uint32_t w = 0; w < 2; ++w) {
    threads.emplace_back([&, w] {
      Worker worker(&shards, &layout, w);
      worker.contribution = w;
      EXPECT_TRUE(worker.client->StartPull(worker.sender, Version(0)).ok());
      for (int t = 0; t < kSteps; ++t) {
        EXPECT_TRUE(worker.client->WaitPull().ok());
        ExpectAll(worker.parameters, 3.0f * t);
        EXPECT_TRUE(
            worker.Push(t, static_cast<float>(w + 1), Version(t + 1)).ok());
      }
      EXPECT_TRUE(worker.client->WaitPull().ok());
      ExpectAll(worker.parameters, 3.0f * kSteps);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// The blocks that hold any of variable `v`, in flat order.
std::vector<BlockId> BlocksOf(const Layout& layout, int v) {
  std::vector<BlockId> blocks;
  int64_t element = layout.flat_begin(v);
  while (element < layout.flat_begin(v) + layout.variables()[v].elements()) {
    blocks.push_back(layout.block_of(element));
    const FlatRange range = layout.block(blocks.back());
    element = range.begin + range.count;
  }
  return blocks;
}

// Floats in the blocks that hold `v` alone.
int64_t ElementsAlone(const Layout& layout, int v) {
  int64_t elements = 0;
  for (const BlockId& id : BlocksOf(layout, v)) {
    elements += layout.segments(id).size() == 1 ? layout.block(id).count : 0;
  }
  return elements;
}

// The next version of a layer arrives while backward works on earlier ones, and
// not a byte of what backward may still read is overwritten by it.
TEST(ParameterClientTest, AVersionComesBeforeTheContributionIsFinished) {
  Want clocked = Latest();
  clocked.set_clock(1);
  for (const Want& want : {Version(1), Latest(), clocked}) {
    const Layout layout = MakeLayout(2);
    const bool sync = want.when_case() == Want::kVersion;
    FakeShards shards({.layout = &layout, .contributions = sync ? 1 : 0});
    Worker worker(&shards, &layout, 0);
    ASSERT_TRUE(
        worker.client->StartPull(worker.sender, sync ? Version(0) : Latest())
            .ok());
    ASSERT_TRUE(worker.client->WaitPull().ok());
    const uint64_t all = static_cast<uint64_t>(layout.flat_elements()) * 4;
    ASSERT_TRUE(worker.client
                    ->BeginContribution(
                        {.sender = worker.sender, .sequence = 0, .then = want})
                    .ok());
    std::fill(worker.gradients.begin(), worker.gradients.end(), 1.0f);
    worker.client->GradientReady(3);
    const int64_t alone = ElementsAlone(layout, 3);
    ASSERT_GT(alone, 0);
    ASSERT_TRUE(worker.HasReceived(all + static_cast<uint64_t>(alone) * 4));
    for (int v = 0; v < 3; ++v) {
      const float* const values =
          worker.parameters.data() + layout.flat_begin(v);
      for (int64_t i = 0; i < layout.variables()[v].elements(); ++i) {
        ASSERT_EQ(values[i], 0.0f) << "v" << v;
      }
    }
    for (int v = 2; v >= 0; --v) {
      worker.client->GradientReady(v);
    }
    ASSERT_TRUE(worker.client->FinishContribution().ok());
    ASSERT_TRUE(worker.client->WaitReceipts().ok());
    ASSERT_TRUE(worker.client->WaitPull().ok());
    ExpectAll(worker.parameters, 1.0f);
  }
}

// With then_at_once the values come before the contribution's own pushes, and
// the next contribution says so: one more step of staleness on every block.
TEST(ParameterClientTest, AContributionNamesTheVersionsThatItWasComputedFrom) {
  const Layout layout = MakeLayout(2);
  FakeShards shards({.layout = &layout});
  Worker worker(&shards, &layout, 0);
  ASSERT_TRUE(worker.client->StartPull(worker.sender, Latest()).ok());
  ASSERT_TRUE(worker.client->WaitPull().ok());
  const uint64_t all = static_cast<uint64_t>(layout.flat_elements()) * 4;
  const auto blocks = static_cast<uint64_t>(layout.block_count(0)) +
                      static_cast<uint64_t>(layout.block_count(1));
  std::fill(worker.gradients.begin(), worker.gradients.end(), 1.0f);
  for (uint64_t i = 0; i < 4; ++i) {
    ContributionPush sequence;
    sequence.sender = worker.sender;
    sequence.sequence = i;
    sequence.then = Latest();
    sequence.then_at_once = true;
    ASSERT_TRUE(worker.client->BeginContribution(sequence).ok());
    ASSERT_TRUE(worker.HasReceived(all * (i + 2)));
    ExpectAll(worker.parameters, static_cast<float>(i));
    for (int v = 3; v >= 0; --v) {
      worker.client->GradientReady(v);
    }
    ASSERT_TRUE(worker.client->FinishContribution().ok());
    const auto result = worker.client->WaitReceipts();
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->staleness_count, blocks);
    EXPECT_EQ(result->staleness_sum, i == 0 ? 0 : blocks) << i;
  }
}

TEST(ParameterClientTest, SeveralChannelsToAPeerShareItsBlocks) {
  for (const int contributions : {0, 1}) {
    for (const int channels : {2, 3, 16}) {
      const Layout layout = MakeLayout(2);
      RandomStream random(5);
      std::mutex mutex;
      FakeShards shards({.layout = &layout,
                         .contributions = contributions,
                         .fault = [&](int, const GradientChunk&) {
                           std::lock_guard<std::mutex> lock(mutex);
                           return random.NextBelow(20) == 0 ? Fault::kBreakAfter
                                                            : Fault::kNone;
                         }});
      Worker worker(&shards, &layout, 0, 5000, channels);
      for (int i = 0; i < 4; ++i) {
        ASSERT_TRUE(
            worker.Push(i, 1.0f, contributions > 0 ? Version(i + 1) : Latest())
                .ok());
        ASSERT_TRUE(worker.client->WaitPull().ok());
        ExpectAll(worker.parameters, static_cast<float>(i + 1));
      }
    }
  }
}

TEST(ParameterClientTest, ALostShardIsNamedOnEveryChannel) {
  const Layout layout = MakeLayout(2);
  FakeShards shards({.layout = &layout});
  Worker worker(&shards, &layout, 0, /*lost_after_ms=*/300, 3);
  shards.SetDown(1, absl::UnavailableError("refused"));
  EXPECT_EQ(worker.Push(0, 1.0f, std::nullopt).message(),
            "ps 1 (fake:1) unreachable for 0.3 s: refused");
}

// Layers smaller than a block share blocks, and so messages: how many a step
// takes follows from the bytes, not from the layers.
TEST(ParameterClientTest, SmallLayersShareMessages) {
  std::vector<VariableSpec> variables(200);
  for (size_t v = 0; v < variables.size(); ++v) {
    variables[v].name = "v" + std::to_string(v);
    variables[v].shape = {10 + static_cast<int64_t>(v % 3)};
  }
  const Layout layout = Layout::Create(std::move(variables), 2, 1024).value();
  const int blocks = layout.block_count(0) + layout.block_count(1);
  ASSERT_LE(blocks, 6);
  for (const int contributions : {0, 1}) {
    std::atomic<int> messages{0};
    FakeShards shards({.layout = &layout,
                       .contributions = contributions,
                       .fault = [&](int, const GradientChunk&) {
                         ++messages;
                         return Fault::kNone;
                       }});
    Worker worker(&shards, &layout, 0);
    constexpr int kSteps = 10;
    for (int i = 0; i < kSteps; ++i) {
      ContributionPush push;
      push.sender = worker.sender;
      push.sequence = i;
      push.then = contributions > 0 ? Version(i + 1) : Latest();
      ASSERT_TRUE(worker.client->BeginContribution(push).ok());
      for (int v = 199; v >= 0; --v) {
        worker.client->GradientReady(v);
      }
      ASSERT_TRUE(worker.client->FinishContribution().ok());
      ASSERT_TRUE(worker.client->WaitReceipts().ok());
      ASSERT_TRUE(worker.client->WaitPull().ok());
    }
    // One a block in async; push and want apart in sync.
    if (contributions == 0) {
      EXPECT_EQ(messages, kSteps * blocks);
    } else {
      EXPECT_GT(messages, kSteps * blocks);
      EXPECT_LE(messages, 2 * kSteps * blocks);
    }
  }
}

TEST(ParameterClientTest, AReplacementFinishesATornContribution) {
  const Layout layout = MakeLayout(2);
  FakeShards shards({.layout = &layout});
  {
    Worker worker(&shards, &layout, 0);
    ASSERT_TRUE(worker.client->StartPull(worker.sender, Latest()).ok());
    ASSERT_TRUE(worker.client->WaitPull().ok());
    ASSERT_TRUE(
        worker.client
            ->BeginContribution({.sender = worker.sender, .sequence = 0})
            .ok());
    std::fill(worker.gradients.begin(), worker.gradients.end(), 1.0f);
    worker.client->GradientReady(3);  // and no more: it dies here
  }
  Worker worker(&shards, &layout, 0);
  ASSERT_TRUE(worker.client->StartPull(worker.sender, Latest()).ok());
  ASSERT_TRUE(worker.client->WaitPull().ok());
  ASSERT_TRUE(worker.Push(0, 1.0f, std::nullopt).ok());
  for (int s = 0; s < 2; ++s) {
    for (int b = 0; b < layout.block_count(s); ++b) {
      ExpectAll(shards.values(s, b), 1.0f);
    }
  }
}

TEST(ParameterClientTest, PushesGradientsFromWhereTheyAre) {
  const Layout layout = MakeLayout(2);
  FakeShards shards({.layout = &layout});
  Worker worker(&shards, &layout, 0);
  const auto value = [](int variable, int64_t i) {
    return static_cast<float>(int64_t{1000} * variable + i);
  };
  std::vector<std::vector<float>> lent(4);
  std::vector<std::pair<int, const float*>> places;
  for (int v = 3; v >= 0; --v) {
    for (int64_t i = 0; i < layout.variables()[v].elements(); ++i) {
      lent[v].push_back(value(v, i));
    }
    places.emplace_back(v, lent[v].data());
  }
  ASSERT_TRUE(worker.client
                  ->BeginContribution(
                      {.sender = worker.sender, .sequence = 0, .left_out = {0}})
                  .ok());
  worker.client->GradientsReady(places);
  ASSERT_TRUE(worker.client->FinishContribution().ok());
  ASSERT_TRUE(worker.client->WaitReceipts().ok());
  int64_t in_place = 0;
  for (int s = 0; s < 2; ++s) {
    for (int b = 0; b < layout.block_count(s); ++b) {
      const FlatRange range = layout.block({s, b});
      for (const Segment& segment : layout.segments({s, b})) {
        if (segment.variable == 0) {
          continue;  // left out
        }
        for (int64_t i = 0; i < segment.count; ++i) {
          ASSERT_EQ(shards.values(s, b)[segment.block_offset + i],
                    value(segment.variable, segment.variable_offset + i));
        }
        const float copied =
            worker.gradients[range.begin + segment.block_offset];
        const bool whole = segment.count == range.count;
        EXPECT_EQ(
            copied,
            whole ? 0.0f : value(segment.variable, segment.variable_offset));
        in_place += whole ? 1 : 0;
      }
    }
  }
  EXPECT_GT(in_place, 0);
}

TEST(ParameterClientTest, LeavesOutWhatWasNeverReady) {
  const Layout layout = MakeLayout(1);
  FakeShards shards({.layout = &layout});
  Worker worker(&shards, &layout, 0);
  ASSERT_TRUE(worker.client
                  ->BeginContribution(
                      {.sender = worker.sender, .sequence = 0, .left_out = {0}})
                  .ok());
  std::fill(worker.gradients.begin(), worker.gradients.end(), 1.0f);
  worker.client->GradientReady(3);
  ASSERT_TRUE(worker.client->FinishContribution().ok());
  ASSERT_TRUE(worker.client->WaitReceipts().ok());
  for (int b = 0; b < layout.block_count(0); ++b) {
    EXPECT_EQ(shards.next_sequence(0, b, 0), 1u);
  }
  const size_t payloads = BlocksOf(layout, 3).size();
  EXPECT_EQ(shards.arrivals().size(), payloads);
}

TEST(ParameterClientTest, AVariableIsThereBeforeTheLastOne) {
  // One block each, on a shard each.
  std::vector<VariableSpec> variables(2);
  for (size_t v = 0; v < variables.size(); ++v) {
    variables[v].name = "v" + std::to_string(v);
    variables[v].shape = {64};
  }
  const Layout layout = Layout::Create(std::move(variables), 2, 64).value();
  const int here = BlocksOf(layout, 0)[0].shard == 0 ? 0 : 1;
  FakeShards shards({.layout = &layout, .contributions = 1});
  Worker worker(&shards, &layout, 0);
  shards.SetSilent(1, true);  // holds the answers of shard 1 back
  ASSERT_TRUE(worker.client->StartPull(worker.sender, Latest()).ok());
  ASSERT_TRUE(worker.client->WaitVariable(here).ok());
  shards.SetSilent(1, false);
  ASSERT_TRUE(worker.client->WaitVariable(1 - here).ok());
  ASSERT_TRUE(worker.client->WaitPull().ok());
}

TEST(ParameterClientTest, ALostShardIsNamed) {
  const Layout layout = MakeLayout(2);
  FakeShards shards({.layout = &layout});
  Worker worker(&shards, &layout, 0, /*lost_after_ms=*/300);
  ASSERT_TRUE(worker.client->StartPull(worker.sender, Latest()).ok());
  ASSERT_TRUE(worker.client->WaitPull().ok());
  shards.SetDown(1, absl::UnavailableError("refused"));
  const absl::Status status = worker.Push(0, 1.0f, std::nullopt);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "ps 1 (fake:1) unreachable for 0.3 s: refused");
}

TEST(ParameterClientTest, ASilentShardIsLostToo) {
  const Layout layout = MakeLayout(1);
  FakeShards shards({.layout = &layout});
  Worker worker(&shards, &layout, 0, /*lost_after_ms=*/300);
  shards.SetSilent(0, true);
  ASSERT_TRUE(worker.client->StartPull(worker.sender, Latest()).ok());
  const absl::Status status = worker.client->WaitPull();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ParameterClientTest, AShardThatComesBackInTimeIsForgiven) {
  const Layout layout = MakeLayout(2);
  FakeShards shards({.layout = &layout});
  Worker worker(&shards, &layout, 0);
  shards.SetDown(0, absl::UnavailableError("refused"));
  std::thread mend([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    shards.SetDown(0, absl::OkStatus());
  });
  EXPECT_TRUE(worker.Push(0, 1.0f, Latest()).ok());
  EXPECT_TRUE(worker.client->WaitPull().ok());
  mend.join();
  ExpectAll(worker.parameters, 1.0f);
}

TEST(ParameterClientTest, ARestartedShardEndsTheClient) {
  const Layout layout = MakeLayout(2);
  FakeShards shards({.layout = &layout});
  Worker worker(&shards, &layout, 0);
  ASSERT_TRUE(worker.Push(0, 1.0f, std::nullopt).ok());
  shards.ChangeIncarnation(1);
  const absl::Status status = worker.Push(1, 1.0f, std::nullopt);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(status.message()).find("ps 1 (fake:1)"),
            std::string::npos);
}

TEST(ParameterClientTest, InterruptEndsAWait) {
  const Layout layout = MakeLayout(1);
  FakeShards shards({.layout = &layout, .contributions = 1});
  Worker worker(&shards, &layout, 0);
  ASSERT_TRUE(worker.client->StartPull(worker.sender, Version(7)).ok());
  std::thread other(
      [&] { worker.client->Interrupt(absl::CancelledError("stop")); });
  EXPECT_EQ(worker.client->WaitPull().code(), absl::StatusCode::kCancelled);
  other.join();
}

}  // namespace
}  // namespace weir
