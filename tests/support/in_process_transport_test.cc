#include "tests/support/in_process_transport.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/cc/parameters/parameter_client.h"
#include "common/base/check.h"
#include "gtest/gtest.h"
#include "tests/support/block_calls.h"

namespace weir {
namespace {

constexpr int kShards = 2;
constexpr auto kTimeout = std::chrono::seconds(20);

// A job of one variable on two stores, SGD with learning rate 1.
struct Job {
  explicit Job(uint64_t seed) : transport(seed) {
    VariableSpec variable;
    variable.name = "w";
    variable.shape = {64 * 11 - 16};
    layout = std::make_unique<Layout>(
        *Layout::Create({variable}, kShards, /*block_elements=*/64));
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      addresses.push_back("ps:" + std::to_string(shard));
      Store::Options options;
      options.incarnation = 100 + shard;
      stores.push_back(*Store::Create(options));
      transport.Serve(addresses.back(), stores.back().get());
      Declare(shard);
    }
  }

  void Declare(uint32_t shard) {
    const auto link = transport.Connect(addresses[shard]);
    DeclareRequest request;
    request.set_shard(shard);
    Declaration* declaration = request.mutable_declaration();
    declaration->set_job("test");
    declaration->set_history(1);
    declaration->set_shard_count(kShards);
    declaration->set_block_elements(64);
    declaration->set_slot_count(1);
    declaration->mutable_update()->mutable_async();
    Variable* variable = declaration->add_variable();
    variable->set_name("w");
    variable->add_shape(64 * 11 - 16);
    Group* group = declaration->add_group();
    group->mutable_optimizer()->mutable_sgd();
    group->mutable_schedule()->set_learning_rate(1.0);
    WEIR_CHECK(link->Declare(request, kTimeout).ok());
    sender.set_job("test");
    sender.set_history(1);
    sender.set_layout_fingerprint(layout->fingerprint());
    sender.set_generation(1);
    SetSlotsRequest slots;
    *slots.mutable_sender() = sender;
    slots.add_slot()->set_generation(1);
    WEIR_CHECK(link->SetSlots(slots, kTimeout).ok());
  }

  InProcessTransport transport;
  std::unique_ptr<Layout> layout;
  std::vector<std::string> addresses;
  std::vector<std::unique_ptr<Store>> stores;
  Sender sender;
};

TEST(InProcessTransportTest, AClientLosesAndDoublesNothingWhateverGoesWrong) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    Job job(seed);
    std::vector<float> parameters(job.layout->flat_elements(), 7.0f);
    std::vector<float> gradients(job.layout->flat_elements(), 0.0f);
    ParameterClient::Options options;
    options.transport = &job.transport;
    options.addresses = job.addresses;
    options.layout = job.layout.get();
    options.parameters = parameters.data();
    options.gradients = gradients.data();
    auto client = ParameterClient::Create(options);
    ASSERT_TRUE(client.ok()) << client.status();
    job.transport.SetFaults({.lost_before = 0.03,
                             .lost_after = 0.03,
                             .duplicated = 0.1,
                             .delayed = 0.2});
    Want latest;
    latest.set_latest(true);
    ASSERT_TRUE((*client)->StartPull(job.sender, latest).ok());
    ASSERT_TRUE((*client)->WaitPull().ok());
    uint64_t duplicates = 0;
    constexpr int kContributions = 30;
    for (int sequence = 0; sequence < kContributions; ++sequence) {
      ContributionPush push;
      push.sender = job.sender;
      push.sequence = static_cast<uint64_t>(sequence);
      push.then = latest;
      ASSERT_TRUE((*client)->BeginContribution(push).ok());
      // Sums of small whole numbers are exact.
      for (int64_t i = 0; i < 64 * 11 - 16; ++i) {
        gradients[i] = static_cast<float>((i + sequence) % 5);
      }
      (*client)->GradientReady(0);
      ASSERT_TRUE((*client)->FinishContribution().ok());
      const auto result = (*client)->WaitReceipts();
      ASSERT_TRUE(result.ok()) << result.status();
      duplicates += result->duplicates;
      ASSERT_TRUE((*client)->WaitPull().ok());
    }
    for (int64_t i = 0; i < 64 * 11 - 16; ++i) {
      float expected = 0;
      for (int sequence = 0; sequence < kContributions; ++sequence) {
        expected -= static_cast<float>((i + sequence) % 5);
      }
      ASSERT_EQ(parameters[i], expected) << i;
    }
    EXPECT_GT((*client)->counters().reconnects, 0u);
    EXPECT_GT(duplicates, 0u);
  }
}

TEST(InProcessTransportTest, AStoppedAddressRefusesAndBreaksItsStreams) {
  Job job(1);
  const auto link = job.transport.Connect("ps:0");
  const auto stream = job.transport.ConnectData("ps:0")->OpenPushPull();
  job.transport.Stop("ps:0");
  ValueChunk header;
  Payload payload;
  EXPECT_EQ(stream->Receive(&header, &payload).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(link->Hello(kTimeout).status(),
            absl::UnavailableError("ps ps:0: connection refused"));
  job.transport.Serve("ps:0", job.stores[0].get());
  EXPECT_TRUE(link->Hello(kTimeout).ok());
}

TEST(InProcessTransportTest, AStoppedStoreCanBeDestroyedUnderItsCallers) {
  for (int i = 0; i < 20; ++i) {
    Job job(1);
    std::atomic<bool> started = false;
    std::thread caller([&] {
      const auto link = job.transport.ConnectData("ps:0");
      Want latest;
      latest.set_latest(true);
      while (
          PullBlocks(link.get(), job.sender, latest, job.layout->block_count(0),
                     [&](const ValueChunk&, const Payload&) { started = true; })
              .ok()) {
      }
    });
    while (!started) {
      std::this_thread::yield();
    }
    job.transport.Stop("ps:0");
    job.stores[0].reset();
    caller.join();
  }
}

TEST(InProcessTransportTest, PullPushAndShutdownReachTheStore) {
  Job job(1);
  const auto link = job.transport.Connect("ps:1");
  Want want;
  want.set_latest(true);
  int blocks = 0;
  ASSERT_TRUE(PullBlocks(job.transport.ConnectData("ps:1").get(), job.sender,
                         want, job.layout->block_count(1),
                         [&](const ValueChunk&, const Payload&) { ++blocks; })
                  .ok());
  EXPECT_EQ(blocks, job.layout->block_count(1));
  ShutdownRequest shutdown;
  *shutdown.mutable_sender() = job.sender;
  EXPECT_FALSE(job.transport.was_shut_down("ps:1"));
  EXPECT_TRUE(link->Shutdown(shutdown, kTimeout).ok());
  EXPECT_TRUE(job.transport.was_shut_down("ps:1"));
}

}  // namespace
}  // namespace weir
