// The parameter client against real stores, over a transport that loses,
// repeats and delays. What it has in common with the client of the tables is in
// exchange_contract_test.cc.
#include "client/cc/parameters/parameter_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/status.h"
#include "tests/support/store_cluster.h"
#include "tests/support/wait_until.h"

namespace weir {
namespace {

using Fate = InProcessTransport::Fate;

// A declaration of four variables, and of `more`.
std::string JobWith(const std::string& more) {
  return absl::StrCat(
      "variable { name: 'v0' shape: 100 } variable { name: 'v1' shape: 1000 } "
      "variable { name: 'v2' shape: 30 } variable { name: 'v3' shape: 500 } ",
      more);
}

std::string Sync(int contributions, int slots = 1) {
  return JobWith(absl::StrCat("update { sync { contributions: ", contributions,
                              " } } slot_count: ", slots));
}

struct Tuning {
  Compression compression = {};
  std::chrono::milliseconds lost_after{5000};
  int channels = 1;
  decltype(ParameterClient::Options::store_values) store_values = {};
};

// A worker: its buffers and its client.
struct Worker {
  explicit Worker(StoreCluster* cluster, int slot = 0,
                  const Tuning& tuning = {})
      : layout(cluster->layout.get()),
        sender(cluster->SenderOf(slot)),
        parameters(static_cast<size_t>(layout->flat_elements())),
        gradients(parameters.size()) {
    ParameterClient::Options options;
    static_cast<ShardClientOptions&>(options) = cluster->ClientOptions();
    options.layout = layout;
    options.parameters = parameters.data();
    options.gradients = gradients.data();
    options.compression = tuning.compression;
    options.lost_after = tuning.lost_after;
    options.channels_per_peer = tuning.channels;
    options.store_values = tuning.store_values;
    client = ParameterClient::Create(std::move(options)).value();
  }

  absl::Status StartPull(const Want& want) {
    return client->StartPull(sender, want);
  }
  absl::Status Pull(const Want& want) {
    WEIR_RETURN_IF_ERROR(StartPull(want));
    return client->WaitPull();
  }

  absl::Status Begin(ContributionPush push) {
    push.sender = sender;
    return client->BeginContribution(push);
  }

  // Says that every gradient is there, that of the last layer first.
  void AllReady() {
    for (size_t v = layout->variables().size(); v-- > 0;) {
      client->GradientReady(static_cast<int>(v));
    }
  }

  absl::StatusOr<ContributionResult> Finish() {
    WEIR_RETURN_IF_ERROR(client->FinishContribution());
    return client->WaitReceipts();
  }

  // Pushes `gradient` for every value and waits for the receipts.
  absl::StatusOr<ContributionResult> Push(const ContributionPush& push,
                                          float gradient) {
    WEIR_RETURN_IF_ERROR(Begin(push));
    std::fill(gradients.begin(), gradients.end(), gradient);
    AllReady();
    return Finish();
  }

  const Layout* const layout;
  const Sender sender;
  std::vector<float> parameters;
  std::vector<float> gradients;
  std::unique_ptr<ParameterClient> client;
};

Want Latest(uint64_t clock = 0) {
  Want want;
  want.set_latest(true);
  want.set_clock(clock);
  return want;
}

Want Version(uint64_t version) {
  Want want;
  want.set_version(version);
  return want;
}

void ExpectVariable(const Layout& layout, const std::vector<float>& flat, int v,
                    float expected) {
  const float* const values = flat.data() + layout.flat_begin(v);
  for (int64_t i = 0; i < layout.variables()[v].elements(); ++i) {
    ASSERT_EQ(values[i], expected) << "v" << v << "[" << i << "]";
  }
}

void ExpectAll(const StoreCluster& cluster, const std::vector<float>& flat,
               float expected) {
  for (size_t v = 0; v < cluster.layout->variables().size(); ++v) {
    ExpectVariable(*cluster.layout, flat, static_cast<int>(v), expected);
  }
}

// Among 100 requests about 1 is lost, and 1 loses its answer.
WireFaults Faults() {
  WireFaults faults;
  faults.lost_before = 0.01;
  faults.lost_after = 0.01;
  faults.duplicated = 0.05;
  faults.delayed = 0.1;
  return faults;
}

TEST(ParameterClientTest, PushesAndPullsOverSeveralShards) {
  for (const int shard_count : {1, 2, 3}) {
    StoreCluster cluster(JobWith(absl::StrCat("shard_count: ", shard_count)));
    Worker worker(&cluster);
    ASSERT_TRUE(worker.Pull(Latest()).ok());
    ExpectAll(cluster, worker.parameters, 0.0f);
    for (uint64_t i = 0; i < 5; ++i) {
      ASSERT_TRUE(worker.Push({.sequence = i, .then = Latest()}, 1.0f).ok());
      ASSERT_TRUE(worker.client->WaitPull().ok());
      ExpectAll(cluster, worker.parameters, -static_cast<float>(i + 1));
    }
    EXPECT_EQ(worker.client->counters().bytes_sent,
              static_cast<uint64_t>(cluster.layout->flat_elements()) * 4 * 5);
  }
}

TEST(ParameterClientTest, AsyncLedgerIsExactThroughFaults) {
  constexpr int kWorkers = 3;
  constexpr uint64_t kContributions = 10;
  StoreCluster cluster(JobWith("slot_count: 3"), /*seed=*/17);
  cluster.transport.SetFaults(Faults());
  std::atomic<uint64_t> breaks{0};
  std::vector<std::thread> threads;
  for (int w = 0; w < kWorkers; ++w) {
    threads.emplace_back([&, w] {
      Worker worker(&cluster, w);
      ASSERT_TRUE(worker.StartPull(Latest()).ok());
      for (uint64_t i = 0; i < kContributions; ++i) {
        ASSERT_TRUE(worker.client->WaitPull().ok());
        const auto result =
            worker.Push({.sequence = i, .then = Latest()}, 1.0f);
        ASSERT_TRUE(result.ok()) << result.status();
      }
      ASSERT_TRUE(worker.client->WaitPull().ok());
      breaks += worker.client->counters().reconnects;
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_GT(breaks, 5u);
  EXPECT_GT(cluster.Sum(&PsStatus::chunks_duplicate), 0u);
  ExpectAll(cluster, cluster.Values(), -1.0f * kWorkers * kContributions);
}

// One worker's contributions to a job in sync. Contributions 0..5 weigh 1 and
// push their number: the mean of a step is 2.5.
void TrainInSync(StoreCluster* cluster, int w, uint64_t steps) {
  constexpr int kWorkers = 2;
  constexpr int kPerWorker = 3;  // contributions a step
  Worker worker(cluster, w);
  ASSERT_TRUE(worker.StartPull(Version(0)).ok());
  for (uint64_t t = 0; t < steps; ++t) {
    ASSERT_TRUE(worker.client->WaitPull().ok());
    ExpectAll(*cluster, worker.parameters, -2.5f * static_cast<float>(t));
    for (int j = 0; j < kPerWorker; ++j) {
      ContributionPush push;
      push.sequence = t * kPerWorker + static_cast<uint64_t>(j);
      push.index_in_step = static_cast<uint32_t>(j * kWorkers + w);
      if (j + 1 == kPerWorker) {
        push.then = Version(t + 1);
      }
      const auto result =
          worker.Push(push, static_cast<float>(push.index_in_step));
      ASSERT_TRUE(result.ok()) << result.status();
    }
  }
  ASSERT_TRUE(worker.client->WaitPull().ok());
  ExpectAll(*cluster, worker.parameters, -2.5f * static_cast<float>(steps));
}

TEST(ParameterClientTest, SyncLedgerIsExactThroughFaults) {
  constexpr uint64_t kSteps = 5;
  // A shard has room for one contribution that comes before its turn, not two.
  StoreCluster cluster(absl::StrCat(Sync(/*contributions=*/6, /*slots=*/2),
                                    " out_of_order_bytes: 4096"),
                       /*seed=*/17);
  cluster.transport.SetFaults(Faults());
  // Worker 1 is alone at first, and its second contribution finds no room.
  std::thread early([&] { TrainInSync(&cluster, 1, kSteps); });
  EXPECT_TRUE(
      WaitUntil([&] { return cluster.Sum(&PsStatus::chunks_deferred) > 0; }));
  TrainInSync(&cluster, 0, kSteps);
  early.join();
  EXPECT_GT(cluster.Sum(&PsStatus::chunks_duplicate), 0u);
}

TEST(ParameterClientTest, AContributionThatWeighsNothingLeadsTheStep) {
  for (const bool sends_gradient : {false, true}) {
    StoreCluster cluster(Sync(/*contributions=*/2, /*slots=*/2));
    Worker leader(&cluster, 0);
    Worker other(&cluster, 1);
    ASSERT_TRUE(other.Pull(Version(0)).ok());
    ASSERT_TRUE(leader.Pull(Version(0)).ok());
    ContributionPush push;
    push.weight = 0.0f;
    push.hyper.emplace_back().set_learning_rate(4.0);
    ASSERT_TRUE(leader.Begin(push).ok());
    std::fill(leader.gradients.begin(), leader.gradients.end(), NAN);
    if (sends_gradient) {
      leader.AllReady();
    }
    ASSERT_TRUE(leader.client->FinishContribution().ok());
    ASSERT_TRUE(
        other.Push({.index_in_step = 1, .then = Version(1)}, 0.5f).ok());
    const auto result = leader.client->WaitReceipts();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_FALSE(result->bad);
    ASSERT_TRUE(other.client->WaitPull().ok());
    ExpectAll(cluster, other.parameters, -2.0f);
  }
}

// One worker's contributions through `compression`; the values that the ps end
// with.
std::vector<float> TrainCompressed(const Compression& compression,
                                   const WireFaults& faults) {
  StoreCluster cluster(JobWith(""), /*seed=*/17);
  cluster.transport.SetFaults(faults);
  Worker worker(&cluster, 0, {.compression = compression});
  Want want = Latest();
  want.set_encoding(compression.pull());
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_TRUE(worker.Begin({.sequence = i, .then = want}).ok());
    for (size_t e = 0; e < worker.gradients.size(); ++e) {
      worker.gradients[e] =
          static_cast<float>(i + 1) * (0.01f * static_cast<float>(e % 89));
    }
    worker.AllReady();
    const auto result = worker.Finish();
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(worker.client->WaitPull().ok());
  }
  return cluster.Values();
}

// A retry sends the bytes of the first time, whatever became of them.
TEST(ParameterClientTest, CompressedContributionsCountOnceThroughFaults) {
  for (const Encoding push : {BF16, F16, INT8, TOP_K}) {
    Compression compression;
    compression.set_push(push);
    compression.set_pull(INT8);
    compression.set_top_k_fraction(push == TOP_K ? 0.05 : 0.0);
    const std::vector<float> calm = TrainCompressed(compression, {});
    EXPECT_EQ(TrainCompressed(compression, Faults()), calm);
    const std::vector<float> exact = TrainCompressed({}, {});
    EXPECT_NE(calm, exact);
    // With 5% of the places a gradient may wait for many contributions.
    for (size_t e = 0; e < exact.size() && push != TOP_K; ++e) {
      ASSERT_NEAR(calm[e], exact[e], 0.05f) << Encoding_Name(push) << e;
    }
  }
}

TEST(ParameterClientTest, ValuesArriveInTheEncodingThatIsWanted) {
  StoreCluster cluster(JobWith(""));
  Worker worker(&cluster);
  Want want = Latest();
  want.set_encoding(BF16);
  ASSERT_TRUE(worker.Push({.then = want}, 1.0f + 0x1p-10f).ok());
  ASSERT_TRUE(worker.client->WaitPull().ok());
  ExpectAll(cluster, worker.parameters, -1.0f);
  EXPECT_EQ(worker.client->counters().bytes_received * 2,
            worker.client->counters().bytes_sent);
}

// Values that the caller stores itself, in every encoding, over shards and
// channels, through faults.
TEST(ParameterClientTest, StoresValuesWhereTheCallerWants) {
  for (const Encoding encoding : {F32, BF16}) {
    StoreCluster cluster(JobWith("shard_count: 2"), /*seed=*/17);
    cluster.transport.SetFaults(Faults());
    std::vector<float> stored(
        static_cast<size_t>(cluster.layout->flat_elements()));
    Tuning tuning;
    tuning.channels = 2;
    tuning.store_values = [&](int64_t begin,
                              std::span<const std::span<const char>> values) {
      auto* to = reinterpret_cast<char*>(stored.data() + begin);
      for (const std::span<const char> piece : values) {
        to = std::copy(piece.begin(), piece.end(), to);
      }
      return absl::OkStatus();
    };
    Worker worker(&cluster, 0, tuning);
    Want want = Latest();
    want.set_encoding(encoding);
    for (uint64_t i = 0; i < 5; ++i) {
      ASSERT_TRUE(worker.Push({.sequence = i, .then = want}, 1.0f).ok());
      ASSERT_TRUE(worker.client->WaitPull().ok());
      ExpectAll(cluster, stored, -static_cast<float>(i + 1));
    }
    EXPECT_EQ(
        std::count(worker.parameters.begin(), worker.parameters.end(), 0.0f),
        static_cast<int64_t>(worker.parameters.size()));
  }
}

TEST(ParameterClientTest, AStoreThatFailsEndsTheClientAndIsNotRepeated) {
  StoreCluster cluster(JobWith("shard_count: 1"));
  std::atomic<int> calls{0};
  Tuning tuning;
  tuning.store_values = [&](int64_t, std::span<const std::span<const char>>) {
    ++calls;
    return absl::InternalError("the device is broken");
  };
  Worker worker(&cluster, 0, tuning);
  const absl::Status status = worker.Pull(Latest());
  EXPECT_EQ(status, absl::InternalError("the device is broken"));
  EXPECT_FALSE(worker.client->HasVariable(3));
  EXPECT_EQ(worker.client->WaitPull(), status);
  EXPECT_EQ(calls, 1);
}

TEST(ParameterClientTest, BoundedStalenessHoldsTheFastWorkerBack) {
  StoreCluster cluster(
      JobWith("update { bounded_staleness { bound: 2 } } slot_count: 2"));
  std::atomic<int> slow_contributions{0};
  std::thread fast([&] {
    Worker worker(&cluster, 0);
    for (uint64_t i = 0; i < 12; ++i) {
      EXPECT_TRUE(
          worker.Push({.sequence = i, .then = Latest(i + 1)}, 1.0f).ok());
      EXPECT_TRUE(worker.client->WaitPull().ok());
      // Clock i + 1 was let through: the slowest is at i - 1 or later.
      EXPECT_GE(slow_contributions + 1, static_cast<int>(i) + 1 - 2);
    }
  });
  Worker slow(&cluster, 1);
  for (uint64_t i = 0; i < 12; ++i) {
    // before it counts, so the check above is not too strict
    ++slow_contributions;
    EXPECT_TRUE(slow.Push({.sequence = i, .then = Latest(i + 1)}, 1.0f).ok());
    EXPECT_TRUE(slow.client->WaitPull().ok());
  }
  fast.join();
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
  const std::tuple<std::string, Want, Want> modes[] = {
      {Sync(1), Version(0), Version(1)},
      {JobWith("update { async {} }"), Latest(), Latest()},
      {JobWith("update { bounded_staleness { bound: 1 } }"), Latest(),
       Latest(1)}};
  for (const auto& [job, first, next] : modes) {
    StoreCluster cluster(job);
    Worker worker(&cluster);
    ASSERT_TRUE(worker.Pull(first).ok());
    ASSERT_TRUE(worker.Begin({.then = next}).ok());
    std::fill(worker.gradients.begin(), worker.gradients.end(), 1.0f);
    worker.client->GradientReady(3);
    const int64_t alone = ElementsAlone(*cluster.layout, 3);
    ASSERT_GT(alone, 0);
    const int64_t elements = cluster.layout->flat_elements() + alone;
    ASSERT_TRUE(WaitUntil([&] {
      return worker.client->counters().bytes_received ==
             static_cast<uint64_t>(elements) * 4;
    }));
    for (int v = 0; v < 3; ++v) {
      ExpectVariable(*cluster.layout, worker.parameters, v, 0.0f);
    }
    worker.AllReady();
    ASSERT_TRUE(worker.Finish().ok());
    ASSERT_TRUE(worker.client->WaitPull().ok());
    ExpectAll(cluster, worker.parameters, -1.0f);
  }
}

// With then_at_once the values come before the contribution's own pushes, and
// the next contribution says so: one more step of staleness on every block.
TEST(ParameterClientTest, AContributionNamesTheVersionsThatItWasComputedFrom) {
  StoreCluster cluster(JobWith(""));
  const Layout& layout = *cluster.layout;
  Worker worker(&cluster);
  ASSERT_TRUE(worker.Pull(Latest()).ok());
  const uint64_t all = static_cast<uint64_t>(layout.flat_elements()) * 4;
  const auto blocks =
      static_cast<uint64_t>(layout.block_count(0) + layout.block_count(1));
  std::fill(worker.gradients.begin(), worker.gradients.end(), 1.0f);
  for (uint64_t i = 0; i < 4; ++i) {
    ContributionPush push;
    push.sequence = i;
    push.then = Latest();
    push.then_at_once = true;
    ASSERT_TRUE(worker.Begin(push).ok());
    ASSERT_TRUE(WaitUntil([&] {
      return worker.client->counters().bytes_received == all * (i + 2);
    }));
    ExpectAll(cluster, worker.parameters, -static_cast<float>(i));
    worker.AllReady();
    const auto result = worker.Finish();
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->staleness_count, blocks);
    EXPECT_EQ(result->staleness_sum, i == 0 ? 0 : blocks) << i;
  }
}

TEST(ParameterClientTest, SeveralChannelsToAPeerShareItsBlocks) {
  for (const bool sync : {false, true}) {
    for (const int channels : {2, 3, 16}) {
      StoreCluster cluster(sync ? Sync(1) : JobWith(""), /*seed=*/5);
      cluster.transport.SetFaults({.lost_after = 0.05});
      Worker worker(&cluster, 0, {.channels = channels});
      for (uint64_t i = 0; i < 4; ++i) {
        const Want next = sync ? Version(i + 1) : Latest();
        ASSERT_TRUE(worker.Push({.sequence = i, .then = next}, 1.0f).ok());
        ASSERT_TRUE(worker.client->WaitPull().ok());
        ExpectAll(cluster, worker.parameters, -static_cast<float>(i + 1));
      }
    }
  }
}

TEST(ParameterClientTest, ALostShardIsNamedOnEveryChannel) {
  StoreCluster cluster(JobWith(""));
  Worker worker(&cluster, 0,
                {.lost_after = std::chrono::milliseconds(300), .channels = 3});
  cluster.transport.Stop(cluster.addresses[1]);
  EXPECT_EQ(worker.Push({}, 1.0f).status().message(),
            "ps 1 (host1:1) unreachable for 0.3 s: connection refused");
}

// Layers smaller than a block share blocks, and so messages: how many a step
// takes follows from the bytes, not from the layers.
TEST(ParameterClientTest, SmallLayersShareMessages) {
  std::string layers = "block_elements: 1024 ";
  for (int v = 0; v < 200; ++v) {
    absl::StrAppend(&layers, "variable { name: 'v", v, "' shape: ", 10 + v % 3,
                    " } ");
  }
  for (const bool sync : {false, true}) {
    StoreCluster cluster(absl::StrCat(
        layers, sync ? "update { sync { contributions: 1 } }" : ""));
    const int blocks =
        cluster.layout->block_count(0) + cluster.layout->block_count(1);
    ASSERT_LE(blocks, 6);
    std::atomic<int> messages{0};
    cluster.transport.SetFate([&](const std::string&, const GradientChunk&) {
      ++messages;
      return Fate::kNormal;
    });
    Worker worker(&cluster);
    constexpr int kSteps = 10;
    for (uint64_t i = 0; i < kSteps; ++i) {
      const Want next = sync ? Version(i + 1) : Latest();
      ASSERT_TRUE(worker.Push({.sequence = i, .then = next}, 1.0f).ok());
      ASSERT_TRUE(worker.client->WaitPull().ok());
    }
    // One a block in async; push and want apart in sync.
    if (!sync) {
      EXPECT_EQ(messages, kSteps * blocks);
    } else {
      EXPECT_GT(messages, kSteps * blocks);
      EXPECT_LE(messages, 2 * kSteps * blocks);
    }
  }
}

TEST(ParameterClientTest, AReplacementFinishesATornContribution) {
  StoreCluster cluster(JobWith(""));
  {
    Worker worker(&cluster);
    ASSERT_TRUE(worker.Pull(Latest()).ok());
    ASSERT_TRUE(worker.Begin({}).ok());
    std::fill(worker.gradients.begin(), worker.gradients.end(), 1.0f);
    worker.client->GradientReady(3);
    // Some of the blocks are there, and no more: it dies here.
    ASSERT_TRUE(
        WaitUntil([&] { return cluster.Sum(&PsStatus::chunks_accepted) > 0; }));
  }
  Worker worker(&cluster);
  ASSERT_TRUE(worker.Pull(Latest()).ok());
  const auto result = worker.Push({}, 1.0f);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->duplicates, 0u);
  ExpectAll(cluster, cluster.Values(), -1.0f);
}

TEST(ParameterClientTest, PushesGradientsFromWhereTheyAre) {
  StoreCluster cluster(JobWith(""));
  const Layout& layout = *cluster.layout;
  Worker worker(&cluster);
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
  ASSERT_TRUE(worker.Begin({.left_out = {0}}).ok());
  worker.client->GradientsReady(places);
  ASSERT_TRUE(worker.Finish().ok());
  const std::vector<float> values = cluster.Values();
  int64_t in_place = 0;
  for (int s = 0; s < 2; ++s) {
    for (int b = 0; b < layout.block_count(s); ++b) {
      const FlatRange range = layout.block({s, b});
      for (const Segment& segment : layout.segments({s, b})) {
        if (segment.variable == 0) {
          continue;  // left out
        }
        const int64_t begin = range.begin + segment.block_offset;
        for (int64_t i = 0; i < segment.count; ++i) {
          ASSERT_EQ(values[begin + i],
                    -value(segment.variable, segment.variable_offset + i));
        }
        const bool whole = segment.count == range.count;
        EXPECT_EQ(
            worker.gradients[begin],
            whole ? 0.0f : value(segment.variable, segment.variable_offset));
        in_place += whole ? 1 : 0;
      }
    }
  }
  EXPECT_GT(in_place, 0);
}

TEST(ParameterClientTest, LeavesOutWhatWasNeverReady) {
  StoreCluster cluster(JobWith("shard_count: 1"));
  Worker worker(&cluster);
  ASSERT_TRUE(worker.Begin({.left_out = {0}}).ok());
  std::fill(worker.gradients.begin(), worker.gradients.end(), 1.0f);
  worker.client->GradientReady(3);
  ASSERT_TRUE(worker.Finish().ok());
  const std::vector<float> values = cluster.Values();
  for (int v = 0; v < 4; ++v) {
    ExpectVariable(*cluster.layout, values, v, v == 3 ? -1.0f : 0.0f);
  }
  // Every block's mark moves on, but only those of v3 have a payload.
  const SlotStatus slot = cluster.stores[0]->Hello().slot(0);
  EXPECT_EQ(slot.next_sequence_min(), 1u);
  EXPECT_EQ(slot.next_sequence_max(), 1u);
  int64_t elements = 0;
  for (const BlockId& id : BlocksOf(*cluster.layout, 3)) {
    elements += cluster.layout->block(id).count;
  }
  EXPECT_EQ(worker.client->counters().bytes_sent,
            static_cast<uint64_t>(elements) * 4);
}

TEST(ParameterClientTest, AVariableIsThereBeforeTheLastOne) {
  // One block each, on a shard each.
  StoreCluster cluster(
      "variable { name: 'v0' shape: 64 } variable { name: 'v1' shape: 64 }");
  const int here = BlocksOf(*cluster.layout, 0)[0].shard == 0 ? 0 : 1;
  absl::Notification go_on;
  cluster.transport.SetFate(
      [&](const std::string& address, const GradientChunk&) {
        if (address == cluster.addresses[1]) {
          go_on.WaitForNotification();
        }
        return Fate::kNormal;
      });
  Worker worker(&cluster);
  ASSERT_TRUE(worker.StartPull(Latest()).ok());
  EXPECT_TRUE(worker.client->WaitVariable(here).ok());
  go_on.Notify();
  ASSERT_TRUE(worker.client->WaitVariable(1 - here).ok());
  ASSERT_TRUE(worker.client->WaitPull().ok());
}

TEST(ParameterClientTest, ASilentShardIsLostToo) {
  StoreCluster cluster(JobWith(""));
  cluster.transport.SetFate([&](const std::string& address,
                                const GradientChunk&) {
    return address == cluster.addresses[1] ? Fate::kNoAnswer : Fate::kNormal;
  });
  Worker worker(&cluster, 0, {.lost_after = std::chrono::milliseconds(300)});
  EXPECT_EQ(worker.Pull(Latest()), absl::FailedPreconditionError(
                                       "ps 1 (host1:1) unreachable for 0.3 s"));
}

TEST(ParameterClientTest, AShardThatComesBackInTimeIsForgiven) {
  StoreCluster cluster(JobWith(""));
  Worker worker(&cluster);
  cluster.transport.Stop(cluster.addresses[0]);
  std::thread mend([&] {
    EXPECT_TRUE(
        WaitUntil([&] { return worker.client->counters().reconnects > 1; }));
    cluster.transport.Serve(cluster.addresses[0], cluster.stores[0].get());
  });
  EXPECT_TRUE(worker.Push({.then = Latest()}, 1.0f).ok());
  EXPECT_TRUE(worker.client->WaitPull().ok());
  mend.join();
  ExpectAll(cluster, worker.parameters, -1.0f);
}

// The new process has the job again, or nothing yet. The client knows the one
// before from its receipts alone.
TEST(ParameterClientTest, ARestartedShardEndsTheClient) {
  for (const bool declared : {false, true}) {
    StoreCluster cluster(JobWith(""));
    Worker worker(&cluster);
    ASSERT_TRUE(worker.Push({}, 1.0f).ok());
    cluster.Replace(1, declared ? cluster.MakeStore(1, 99)
                                : *Store::Create({.incarnation = 99}));
    const absl::Status status = worker.Push({}, 1.0f).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(absl::StrContains(
        status.message(), declared ? "ps 1 (host1:1) the process was restarted"
                                   : "ps 1 (host1:1)"))
        << status;
  }
}

TEST(ParameterClientTest, InterruptEndsAWait) {
  StoreCluster cluster(Sync(1));
  Worker worker(&cluster);
  ASSERT_TRUE(worker.StartPull(Version(7)).ok());
  std::thread other(
      [&] { worker.client->Interrupt(absl::CancelledError("stop")); });
  EXPECT_EQ(worker.client->WaitPull().code(), absl::StatusCode::kCancelled);
  other.join();
}

}  // namespace
}  // namespace weir
