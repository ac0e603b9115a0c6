// The parameter client against real stores, over a transport that loses,
// repeats and delays.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "client/cc/parameters/parameter_client.h"
#include "proto/wire/layout_io.h"
#include "tests/support/in_process_transport.h"

namespace weir {
namespace {

constexpr int kShards = 2;

// Declared stores of a job whose values are minus the sum of gradients.
class Cluster {
 public:
  Cluster(int slots, const Update& update) {
    std::vector<VariableSpec> variables(3);
    const int64_t sizes[] = {700, 3000, 90};
    for (int v = 0; v < 3; ++v) {
      variables[v].name = "v" + std::to_string(v);
      variables[v].shape = {sizes[v]};
    }
    layout = std::make_unique<Layout>(
        Layout::Create(variables, kShards, 256).value());
    Declaration declaration;
    declaration.set_job("ledger");
    declaration.set_history(9);
    declaration.set_shard_count(kShards);
    declaration.set_block_elements(256);
    for (const VariableSpec& variable : variables) {
      *declaration.add_variable() = VariableToProto(variable);
    }
    Group* group = declaration.add_group();
    group->mutable_optimizer()->mutable_sgd();
    group->mutable_schedule()->set_learning_rate(1.0);
    *declaration.mutable_update() = update;
    declaration.set_slot_count(static_cast<uint32_t>(slots));
    declaration.set_out_of_order_bytes(4096);
    sender.set_job("ledger");
    sender.set_history(9);
    sender.set_layout_fingerprint(layout->fingerprint());
    for (int s = 0; s < kShards; ++s) {
      Store::Options options;
      options.incarnation = 50 + s;
      stores.push_back(Store::Create(options).value());
      addresses.push_back("store:" + std::to_string(s));
      transport.Serve(addresses.back(), stores.back().get());
      DeclareRequest request;
      *request.mutable_declaration() = declaration;
      request.set_shard(static_cast<uint32_t>(s));
      EXPECT_TRUE(stores[s]->Declare(request).ok());
    }
    SetSlotsRequest slots_request;
    *slots_request.mutable_sender() = sender;
    for (int w = 0; w < slots; ++w) {
      SetSlotsRequest::Slot* slot = slots_request.add_slot();
      slot->set_slot(static_cast<uint32_t>(w));
      slot->set_generation(1);
    }
    for (const auto& store : stores) {
      EXPECT_TRUE(store->SetSlots(slots_request).ok());
    }
  }

  std::unique_ptr<Layout> layout;
  Sender sender;
  std::vector<std::string> addresses;
  std::vector<std::unique_ptr<Store>> stores;
  InProcessTransport transport{17};
};

struct Worker {
  Worker(Cluster* cluster, int slot, const Compression& compression = {})
      : sender(cluster->sender),
        parameters(cluster->layout->flat_elements()),
        gradients(cluster->layout->flat_elements()) {
    sender.set_slot(static_cast<uint32_t>(slot));
    sender.set_generation(1);
    ParameterClient::Options options;
    options.transport = &cluster->transport;
    options.addresses = cluster->addresses;
    options.layout = cluster->layout.get();
    options.parameters = parameters.data();
    options.gradients = gradients.data();
    options.compression = compression;
    client = ParameterClient::Create(std::move(options)).value();
  }

  absl::Status Push(uint64_t sequence, uint32_t contribution, float value,
                    const Want& want) {
    ContributionPush push;
    push.sender = sender;
    push.sequence = sequence;
    push.index_in_step = contribution;
    push.then = want;
    absl::Status status = client->BeginContribution(push);
    std::fill(gradients.begin(), gradients.end(), value);
    for (int v = 2; v >= 0; --v) {
      client->GradientReady(v);
    }
    status.Update(client->FinishContribution());
    status.Update(client->WaitReceipts().status());
    return status;
  }

  Sender sender;
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

WireFaults Faults() {
  WireFaults faults;
  faults.lost_before = 0.01;
  faults.lost_after = 0.01;
  faults.duplicated = 0.05;
  faults.delayed = 0.1;
  return faults;
}

void ExpectAll(const Cluster& cluster, const std::vector<float>& parameters,
               float expected) {
  for (size_t v = 0; v < cluster.layout->variables().size(); ++v) {
    const int64_t begin = cluster.layout->flat_begin(static_cast<int>(v));
    for (int64_t i = 0; i < cluster.layout->variables()[v].elements(); ++i) {
      ASSERT_EQ(parameters[begin + i], expected) << "v" << v << "[" << i << "]";
    }
  }
}

TEST(ParameterClientStoreTest, AsyncLedgerIsExactThroughFaults) {
  Update update;
  update.mutable_async();
  constexpr int kWorkers = 3;
  constexpr int kContributions = 10;
  Cluster cluster(kWorkers, update);
  cluster.transport.SetFaults(Faults());
  std::vector<std::thread> threads;
  for (int w = 0; w < kWorkers; ++w) {
    threads.emplace_back([&cluster, w] {
      Worker worker(&cluster, w);
      for (int i = 0; i < kContributions; ++i) {
        const absl::Status status = worker.Push(i, 0, 1.0f, Latest());
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_TRUE(worker.client->WaitPull().ok());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  cluster.transport.SetFaults({});
  Worker reader(&cluster, 0);
  ASSERT_TRUE(reader.client->StartPull(reader.sender, Latest()).ok());
  ASSERT_TRUE(reader.client->WaitPull().ok());
  ExpectAll(cluster, reader.parameters, -1.0f * kWorkers * kContributions);
}

TEST(ParameterClientStoreTest, SyncLedgerIsExactThroughFaults) {
  constexpr int kWorkers = 2;
  constexpr int kPerWorker = 3;  // contributions a step
  constexpr int kSteps = 5;
  Update update;
  update.mutable_sync()->set_contributions(kWorkers * kPerWorker);
  Cluster cluster(kWorkers, update);
  cluster.transport.SetFaults(Faults());
  std::vector<std::thread> threads;
  for (int w = 0; w < kWorkers; ++w) {
    threads.emplace_back([&cluster, w] {
      Worker worker(&cluster, w);
      ASSERT_TRUE(worker.client->StartPull(worker.sender, Version(0)).ok());
      for (int t = 0; t < kSteps; ++t) {
        ASSERT_TRUE(worker.client->WaitPull().ok());
        // Contributions 0..5 weigh 1 and push their number: the mean is 2.5.
        ExpectAll(cluster, worker.parameters, -2.5f * static_cast<float>(t));
        for (int j = 0; j < kPerWorker; ++j) {
          const uint32_t m = static_cast<uint32_t>(j * kWorkers + w);
          const uint64_t sequence = static_cast<uint64_t>(t) * kPerWorker + j;
          const std::optional<Want> want =
              j + 1 < kPerWorker ? std::nullopt
                                 : std::optional<Want>(Version(t + 1));
          ContributionPush push;
          push.sender = worker.sender;
          push.sequence = sequence;
          push.index_in_step = m;
          push.then = want;
          ASSERT_TRUE(worker.client->BeginContribution(push).ok());
          std::fill(worker.gradients.begin(), worker.gradients.end(),
                    static_cast<float>(m));
          for (int v = 2; v >= 0; --v) {
            worker.client->GradientReady(v);
          }
          ASSERT_TRUE(worker.client->FinishContribution().ok());
          const auto result = worker.client->WaitReceipts();
          ASSERT_TRUE(result.ok()) << result.status();
        }
      }
      ASSERT_TRUE(worker.client->WaitPull().ok());
      ExpectAll(cluster, worker.parameters, -2.5f * kSteps);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(ParameterClientStoreTest, AContributionThatWeighsNothingLeadsTheStep) {
  for (const bool sends_gradient : {false, true}) {
    Update update;
    update.mutable_sync()->set_contributions(2);
    Cluster cluster(2, update);
    Worker leader(&cluster, 0);
    Worker other(&cluster, 1);
    for (Worker* const worker : {&other, &leader}) {
      ASSERT_TRUE(worker->client->StartPull(worker->sender, Version(0)).ok());
      ASSERT_TRUE(worker->client->WaitPull().ok());
    }
    ContributionPush push;
    push.sender = leader.sender;
    push.weight = 0.0f;
    push.hyper.emplace_back().set_learning_rate(4.0);
    ASSERT_TRUE(leader.client->BeginContribution(push).ok());
    std::fill(leader.gradients.begin(), leader.gradients.end(), NAN);
    for (int v = 2; v >= 0 && sends_gradient; --v) {
      leader.client->GradientReady(v);
    }
    ASSERT_TRUE(leader.client->FinishContribution().ok());
    ASSERT_TRUE(other.Push(0, 1, 0.5f, Version(1)).ok());
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
  Update update;
  update.mutable_async();
  Cluster cluster(1, update);
  cluster.transport.SetFaults(faults);
  {
    Worker worker(&cluster, 0, compression);
    Want want = Latest();
    want.set_encoding(compression.pull());
    for (int i = 0; i < 10; ++i) {
      ContributionPush push;
      push.sender = worker.sender;
      push.sequence = static_cast<uint64_t>(i);
      push.then = want;
      EXPECT_TRUE(worker.client->BeginContribution(push).ok());
      for (size_t e = 0; e < worker.gradients.size(); ++e) {
        worker.gradients[e] =
            static_cast<float>(i + 1) * (0.01f * static_cast<float>(e % 89));
      }
      for (int v = 2; v >= 0; --v) {
        worker.client->GradientReady(v);
      }
      EXPECT_TRUE(worker.client->FinishContribution().ok());
      const auto result = worker.client->WaitReceipts();
      EXPECT_TRUE(result.ok()) << result.status();
      EXPECT_TRUE(worker.client->WaitPull().ok());
    }
  }
  cluster.transport.SetFaults({});
  Worker reader(&cluster, 0);
  EXPECT_TRUE(reader.client->StartPull(reader.sender, Latest()).ok());
  EXPECT_TRUE(reader.client->WaitPull().ok());
  return reader.parameters;
}

// A retry sends the bytes of the first time, whatever became of them.
TEST(ParameterClientStoreTest, CompressedContributionsCountOnceThroughFaults) {
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

TEST(ParameterClientStoreTest, ValuesArriveInTheEncodingThatIsWanted) {
  Update update;
  update.mutable_async();
  Cluster cluster(1, update);
  Worker worker(&cluster, 0);
  Want want = Latest();
  want.set_encoding(BF16);
  ASSERT_TRUE(worker.Push(0, 0, 1.0f + 0x1p-10f, want).ok());
  ASSERT_TRUE(worker.client->WaitPull().ok());
  ExpectAll(cluster, worker.parameters, -1.0f);
  EXPECT_EQ(worker.client->counters().bytes_received * 2,
            worker.client->counters().bytes_sent);
}

TEST(ParameterClientStoreTest, BoundedStalenessHoldsTheFastWorkerBack) {
  Update update;
  update.mutable_bounded_staleness()->set_bound(2);
  Cluster cluster(2, update);
  std::atomic<int> slow_contributions{0};
  std::atomic<bool> fast_done{false};
  std::thread fast([&] {
    Worker worker(&cluster, 0);
    for (int i = 0; i < 12; ++i) {
      EXPECT_TRUE(worker.Push(i, 0, 1.0f, Latest(i + 1)).ok());
      EXPECT_TRUE(worker.client->WaitPull().ok());
      // Clock i + 1 was let through: the slowest is at i - 1 or later.
      EXPECT_GE(slow_contributions + 1, i + 1 - 2);
    }
    fast_done = true;
  });
  Worker slow(&cluster, 1);
  for (int i = 0; i < 12; ++i) {
    // before it counts, so the check above is not too strict
    ++slow_contributions;
    EXPECT_TRUE(slow.Push(i, 0, 1.0f, Latest(i + 1)).ok());
    EXPECT_TRUE(slow.client->WaitPull().ok());
  }
  fast.join();
  EXPECT_TRUE(fast_done);
}

TEST(ParameterClientStoreTest, AShardThatIsGoneIsNamed) {
  Update update;
  update.mutable_async();
  Cluster cluster(1, update);
  Worker worker(&cluster, 0);
  ASSERT_TRUE(worker.Push(0, 0, 1.0f, Latest()).ok());
  ASSERT_TRUE(worker.client->WaitPull().ok());
  // The same address, a new and empty process.
  Store::Options options;
  options.incarnation = 99;
  const auto empty = Store::Create(options).value();
  cluster.transport.Stop(cluster.addresses[1]);
  cluster.transport.Serve(cluster.addresses[1], empty.get());
  const absl::Status status = worker.Push(1, 0, 1.0f, Latest());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(std::string(status.message()).find("ps 1 (store:1)"),
            std::string::npos);
}

}  // namespace
}  // namespace weir
