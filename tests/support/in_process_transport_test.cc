#include "tests/support/in_process_transport.h"

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/cc/parameters/parameter_client.h"
#include "gtest/gtest.h"
#include "tests/support/block_calls.h"
#include "tests/support/store_cluster.h"

namespace weir {
namespace {

constexpr auto kTimeout = std::chrono::seconds(20);
constexpr int64_t kElements = 688;  // 11 blocks on two shards
constexpr char kJob[] = "variable { name: 'w' shape: 688 }";

Want Latest() {
  Want want;
  want.set_latest(true);
  return want;
}

TEST(InProcessTransportTest, AClientLosesAndDoublesNothingWhateverGoesWrong) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    StoreCluster job(kJob, seed);
    std::vector<float> parameters(job.layout->flat_elements(), 7.0f);
    std::vector<float> gradients(job.layout->flat_elements(), 0.0f);
    ParameterClient::Options options;
    static_cast<ShardClientOptions&>(options) = job.ClientOptions();
    options.layout = job.layout.get();
    options.parameters = parameters.data();
    options.gradients = gradients.data();
    auto client = ParameterClient::Create(options);
    ASSERT_TRUE(client.ok()) << client.status();
    job.transport.SetFaults({.lost_before = 0.03,
                             .lost_after = 0.03,
                             .duplicated = 0.1,
                             .delayed = 0.2});
    ASSERT_TRUE((*client)->StartPull(job.SenderOf(0), Latest()).ok());
    ASSERT_TRUE((*client)->WaitPull().ok());
    uint64_t duplicates = 0;
    constexpr int kContributions = 30;
    for (int sequence = 0; sequence < kContributions; ++sequence) {
      ContributionPush push;
      push.sender = job.SenderOf(0);
      push.sequence = static_cast<uint64_t>(sequence);
      push.then = Latest();
      ASSERT_TRUE((*client)->BeginContribution(push).ok());
      // Sums of small whole numbers are exact.
      for (int64_t i = 0; i < kElements; ++i) {
        gradients[i] = static_cast<float>((i + sequence) % 5);
      }
      (*client)->GradientReady(0);
      ASSERT_TRUE((*client)->FinishContribution().ok());
      const auto result = (*client)->WaitReceipts();
      ASSERT_TRUE(result.ok()) << result.status();
      duplicates += result->duplicates;
      ASSERT_TRUE((*client)->WaitPull().ok());
    }
    for (int64_t i = 0; i < kElements; ++i) {
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
  StoreCluster job(kJob);
  const auto link = job.transport.Connect("host0:1");
  const auto stream = job.transport.ConnectData("host0:1")->OpenPushPull();
  job.transport.Stop("host0:1");
  ValueChunk header;
  Payload payload;
  EXPECT_EQ(stream->Receive(&header, &payload).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(link->Hello(kTimeout).status(),
            absl::UnavailableError("ps host0:1: connection refused"));
  job.transport.Serve("host0:1", job.stores[0].get());
  EXPECT_TRUE(link->Hello(kTimeout).ok());
}

TEST(InProcessTransportTest, AStoppedStoreCanBeDestroyedUnderItsCallers) {
  for (int i = 0; i < 20; ++i) {
    StoreCluster job(kJob);
    std::atomic<bool> started = false;
    std::thread caller([&] {
      const auto link = job.transport.ConnectData("host0:1");
      while (
          PullBlocks(link.get(), job.SenderOf(0), Latest(),
                     job.layout->block_count(0),
                     [&](const ValueChunk&, const Payload&) { started = true; })
              .ok()) {
      }
    });
    while (!started) {
      std::this_thread::yield();
    }
    job.transport.Stop("host0:1");
    job.stores[0].reset();
    caller.join();
  }
}

TEST(InProcessTransportTest, PullPushAndShutdownReachTheStore) {
  StoreCluster job(kJob);
  const auto link = job.transport.Connect("host1:1");
  int blocks = 0;
  ASSERT_TRUE(PullBlocks(job.transport.ConnectData("host1:1").get(),
                         job.SenderOf(0), Latest(), job.layout->block_count(1),
                         [&](const ValueChunk&, const Payload&) { ++blocks; })
                  .ok());
  EXPECT_EQ(blocks, job.layout->block_count(1));
  ShutdownRequest shutdown;
  *shutdown.mutable_sender() = job.SenderOf(0);
  EXPECT_FALSE(job.transport.was_shut_down("host1:1"));
  EXPECT_TRUE(link->Shutdown(shutdown, kTimeout).ok());
  EXPECT_TRUE(job.transport.was_shut_down("host1:1"));
}

// A push of zeros for the first block of shard 0.
absl::Status PushZeros(StoreCluster* job) {
  GradientChunk chunk;
  *chunk.mutable_sender() = job->SenderOf(0);
  chunk.mutable_push();
  const std::vector<char> zeros(64 * sizeof(float));
  bool sent = false;
  return PushBlocks(job->transport.ConnectData("host0:1").get(),
                    [&](GradientChunk* header, std::span<const char>* payload) {
                      *header = chunk;
                      *payload = zeros;
                      return !std::exchange(sent, true);
                    })
      .status();
}

TEST(InProcessTransportTest, ATestDecidesTheFateOfARequest) {
  using Fate = InProcessTransport::Fate;
  StoreCluster job(kJob);
  std::vector<Fate> fates = {Fate::kNormal, Fate::kLostAfter,
                             Fate::kLostBefore};
  job.transport.SetFate(
      [&](const std::string& address, const GradientChunk& request) {
        EXPECT_EQ(address, "host0:1");
        EXPECT_TRUE(request.has_push());
        const Fate fate = fates.back();
        fates.pop_back();
        return fate;
      });
  EXPECT_TRUE(absl::IsUnavailable(PushZeros(&job)));
  EXPECT_EQ(job.Sum(&PsStatus::chunks_accepted), 0u);
  EXPECT_TRUE(absl::IsUnavailable(PushZeros(&job)));
  EXPECT_EQ(job.Sum(&PsStatus::chunks_accepted), 1u);
  EXPECT_EQ(PushZeros(&job), absl::OkStatus());
  EXPECT_EQ(job.Sum(&PsStatus::chunks_duplicate), 1u);
  job.transport.SetFate(nullptr);
  EXPECT_EQ(PushZeros(&job), absl::OkStatus());
  EXPECT_EQ(job.Sum(&PsStatus::chunks_duplicate), 2u);
}

TEST(InProcessTransportTest, PayloadsComeInPiecesAndGoBackLate) {
  StoreCluster job(kJob);
  const auto stream = job.transport.ConnectData("host0:1")->OpenPushPull();
  GradientChunk chunk;
  *chunk.mutable_sender() = job.SenderOf(0);
  chunk.mutable_push();
  *chunk.mutable_want() = Latest();
  const std::vector<char> zeros(64 * sizeof(float));
  bool released = false;
  ASSERT_TRUE(stream->Send(chunk, zeros, [&] { released = true; }).ok());
  EXPECT_FALSE(released);
  ValueChunk answer;
  Payload values;
  ASSERT_TRUE(stream->Receive(&answer, &values).ok());
  EXPECT_TRUE(released);
  EXPECT_EQ(values.bytes(), zeros.size());
  ASSERT_EQ(values.pieces().size(), 2u);
  EXPECT_NE(values.pieces()[0].size() % sizeof(float), 0u);
}

TEST(InProcessTransportDeathTest, ABorrowedPayloadMustNotChange) {
  StoreCluster job(kJob);
  GradientChunk chunk;
  *chunk.mutable_sender() = job.SenderOf(0);
  chunk.mutable_push();
  std::vector<char> zeros(64 * sizeof(float));
  auto stream = job.transport.ConnectData("host0:1")->OpenPushPull();
  ASSERT_TRUE(stream->Send(chunk, zeros, [] {}).ok());
  zeros[5] = 1;
  EXPECT_DEATH(stream.reset(), "invariant broken");
  zeros[5] = 0;
}

}  // namespace
}  // namespace weir
