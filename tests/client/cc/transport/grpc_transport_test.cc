#include "client/cc/transport/grpc_transport.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/math/random.h"
#include "gtest/gtest.h"
#include "proto/ps.grpc.pb.h"
#include "proto/wire/value_encoding.h"
#include "proto/wire/wire_version.h"
#include "tests/common/temp_dir.h"
#include "tests/support/block_calls.h"
#include "tests/support/loopback_ps.h"

namespace weir {
namespace {

constexpr auto kTimeout = std::chrono::seconds(20);

Want Latest() {
  Want want;
  want.set_latest(true);
  return want;
}

Want Version(uint64_t version, uint32_t timeout_ms) {
  Want want;
  want.set_version(version);
  want.set_timeout_ms(timeout_ms);
  return want;
}

std::vector<float> Gradient(int64_t count, uint64_t key) {
  RandomStream random(key);
  std::vector<float> gradient(static_cast<size_t>(count));
  for (float& value : gradient) {
    value = random.NextFloat(-1.0f, 1.0f);
  }
  return gradient;
}

std::vector<float> Negative(std::vector<float> values) {
  for (float& value : values) {
    value = -value;
  }
  return values;
}

// The chunks of one contribution, a gradient for each block.
struct Contribution {
  Contribution(const LoopbackPs& ps, int slot, uint64_t number) {
    for (int block = 0; block < ps.options.block_count; ++block) {
      headers.push_back(ps.Chunk(slot, number, block));
      gradients.push_back(Gradient(ps.elements(block), number * 1000 + block));
    }
  }
  ChunkSource<GradientChunk> Next() {
    return [this, i = size_t{0}](GradientChunk* header,
                                 std::span<const char>* payload) mutable {
      if (i == headers.size()) {
        return false;
      }
      *header = headers[i];
      *payload = BytesOf(gradients[i++]);
      return true;
    };
  }
  std::vector<GradientChunk> headers;
  std::vector<std::vector<float>> gradients;
};

// Counts calls of `released`.
class Releases {
 public:
  std::function<void()> Add() {
    ++expected_;
    return [count = count_] { ++*count; };
  }
  // True when all came, each once.
  bool AllCome() const {
    const auto end = std::chrono::steady_clock::now() + kTimeout;
    while (*count_ < expected_ && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    return *count_ == expected_;
  }

 private:
  int expected_ = 0;
  std::shared_ptr<std::atomic<int>> count_ =
      std::make_shared<std::atomic<int>>(0);
};

// Every transport's streams do this. The parameter: through shared memory.
class PushPullTest : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Transports, PushPullTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Shm" : "Grpc";
                         });

TEST(GrpcTransportTest, PushedGradientsAreAppliedAndPulledBack) {
  LoopbackPs ps;
  Contribution contribution(ps, 0, 0);
  const auto reply = PushBlocks(ps.data.get(), contribution.Next());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->accepted, 4u);
  EXPECT_EQ(reply->incarnation, 77u);
  std::map<uint32_t, std::vector<float>> pulled;
  ASSERT_TRUE(PullBlocks(ps.data.get(), ps.SenderOf(0), Latest(), 4,
                         [&](const ValueChunk& header, const Payload& payload) {
                           EXPECT_EQ(header.version(), 1u);
                           EXPECT_EQ(header.incarnation(), 77u);
                           pulled[header.block()] = FloatsOf(payload);
                         })
                  .ok());
  ASSERT_EQ(pulled.size(), 4u);
  for (const auto& [block, values] : pulled) {
    EXPECT_EQ(values, Negative(contribution.gradients[block])) << block;
  }
}

TEST(GrpcTransportTest, ARepeatedPushIsADuplicate) {
  LoopbackPs ps;
  Contribution contribution(ps, 1, 0);
  ASSERT_TRUE(PushBlocks(ps.data.get(), contribution.Next()).ok());
  const auto again = PushBlocks(ps.data.get(), contribution.Next());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->accepted, 0u);
  EXPECT_EQ(again->duplicate, 4u);
  EXPECT_EQ(ps.Values(0), Negative(contribution.gradients[0]));
}

TEST(GrpcTransportTest, ASkippedContributionIsOutOfRangeAndNamesThePs) {
  LoopbackPs ps;
  Contribution contribution(ps, 0, 3);
  const absl::Status status =
      PushBlocks(ps.data.get(), contribution.Next()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
  EXPECT_NE(status.message().find("ps " + ps.address()), std::string::npos);
}

TEST(GrpcTransportTest, NanIsLeftOut) {
  LoopbackPs ps;
  Contribution contribution(ps, 0, 0);
  contribution.gradients[2][5] = std::numeric_limits<float>::quiet_NaN();
  const auto reply = PushBlocks(ps.data.get(), contribution.Next());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->accepted, 3u);
  EXPECT_EQ(reply->left_out, std::vector<uint32_t>{2});
  EXPECT_EQ(ps.Values(2), std::vector<float>(1024, 0.0f));
}

TEST(GrpcTransportTest, BlocksComeInTheEncodingAskedFor) {
  LoopbackPs ps;
  Contribution contribution(ps, 0, 0);
  ASSERT_TRUE(PushBlocks(ps.data.get(), contribution.Next()).ok());
  for (const Encoding encoding : {F32, BF16, F16, INT8}) {
    Want want = Latest();
    want.set_encoding(encoding);
    int blocks = 0;
    ASSERT_TRUE(
        PullBlocks(ps.data.get(), ps.SenderOf(0), want, 4,
                   [&](const ValueChunk& header, const Payload& bytes) {
                     ++blocks;
                     EXPECT_EQ(header.encoding(), encoding);
                     EXPECT_EQ(
                         bytes.bytes(),
                         EncodedBytes(encoding, ps.elements(header.block())));
                   })
            .ok());
    EXPECT_EQ(blocks, 4);
  }
}

TEST_P(PushPullTest, PushPullAnswersWithReceiptAndValues) {
  for (const int queues : {1, 3}) {
    LoopbackPs ps({.queue_count = queues, .shared_memory = GetParam()});
    const auto stream = ps.data->OpenPushPull();
    Releases releases;
    std::vector<std::unique_ptr<Contribution>> contributions;
    for (uint64_t number = 0; number < 5; ++number) {
      contributions.push_back(std::make_unique<Contribution>(ps, 0, number));
      for (int block = 0; block < 4; ++block) {
        GradientChunk header = contributions.back()->headers[block];
        *header.mutable_want() = Latest();
        ASSERT_TRUE(stream
                        ->Send(header,
                               BytesOf(contributions.back()->gradients[block]),
                               releases.Add())
                        .ok());
      }
    }
    std::map<uint32_t, uint64_t> contributions_seen;
    for (int i = 0; i < 20; ++i) {
      ValueChunk header;
      Payload payload;
      ASSERT_TRUE(stream->Receive(&header, &payload).ok());
      EXPECT_EQ(header.receipt().outcome(), Receipt::ACCEPTED);
      EXPECT_EQ(header.receipt().sequence(),
                contributions_seen[header.block()]++);
      // The latest: later contributions may already be in it.
      EXPECT_GT(header.version(), header.receipt().sequence());
      if (header.version() == 5) {
        EXPECT_EQ(FloatsOf(payload),
                  ps.Values(static_cast<int>(header.block())));
      }
    }
    EXPECT_TRUE(releases.AllCome());
  }
}

TEST_P(PushPullTest, ARunWithoutPayloadIsOneReceiptOrOneChunkPerBlock) {
  LoopbackPs ps({.shared_memory = GetParam()});
  const auto stream = ps.data->OpenPushPull();
  GradientChunk run = ps.Chunk(0, 0, 0);
  run.set_block_count(4);
  ValueChunk header;
  Payload payload;
  ASSERT_TRUE(stream->Send(run, {}, nullptr).ok());
  ASSERT_TRUE(stream->Receive(&header, &payload).ok());
  EXPECT_EQ(header.receipt().outcome(), Receipt::ACCEPTED);
  EXPECT_EQ(header.block_count(), 4u);
  EXPECT_TRUE(payload.empty());

  run.clear_push();
  *run.mutable_want() = Latest();
  ASSERT_TRUE(stream->Send(run, {}, nullptr).ok());
  for (uint32_t block = 0; block < 4; ++block) {
    ASSERT_TRUE(stream->Receive(&header, &payload).ok());
    EXPECT_EQ(header.block(), block);
    EXPECT_FALSE(header.has_receipt());
    EXPECT_EQ(payload.bytes(), ps.elements(static_cast<int>(block)) * 4u);
  }
}

TEST_P(PushPullTest, AParkedWantIsAnsweredWhenAnotherClientMakesItHold) {
  LoopbackPs ps({.sync_contributions = 2, .shared_memory = GetParam()});
  const auto first = ps.data->OpenPushPull();
  const auto second = ps.data->OpenPushPull();
  const std::vector<float> ones(1024, 1.0f);
  const std::vector<float> threes(1024, 3.0f);
  GradientChunk chunk = ps.Chunk(0, 0, 1);
  *chunk.mutable_want() = Version(1, 10000);
  ASSERT_TRUE(first->Send(chunk, BytesOf(ones), nullptr).ok());
  // A request behind the parked one is answered before it.
  GradientChunk now;
  *now.mutable_sender() = ps.SenderOf(0);
  *now.mutable_want() = Version(0, 10000);
  ASSERT_TRUE(first->Send(now, {}, nullptr).ok());
  ValueChunk header;
  Payload payload;
  ASSERT_TRUE(first->Receive(&header, &payload).ok());
  EXPECT_EQ(header.block(), 0u);

  chunk = ps.Chunk(1, 0, 1);
  chunk.mutable_push()->set_index_in_step(1);
  ASSERT_TRUE(second->Send(chunk, BytesOf(threes), nullptr).ok());
  ASSERT_TRUE(first->Receive(&header, &payload).ok());
  EXPECT_EQ(header.block(), 1u);
  EXPECT_EQ(header.version(), 1u);
  EXPECT_EQ(FloatsOf(payload), std::vector<float>(1024, -2.0f));
}

TEST_P(PushPullTest, AWantThatRunsOutIsNotYet) {
  LoopbackPs ps({.sync_contributions = 1, .shared_memory = GetParam()});
  const auto stream = ps.data->OpenPushPull();
  GradientChunk ask;
  *ask.mutable_sender() = ps.SenderOf(0);
  *ask.mutable_want() = Version(1, 100);
  ASSERT_TRUE(stream->Send(ask, {}, nullptr).ok());
  ValueChunk header;
  Payload payload;
  ASSERT_TRUE(stream->Receive(&header, &payload).ok());
  EXPECT_TRUE(header.not_yet());
  EXPECT_TRUE(payload.empty());
}

TEST_P(PushPullTest, CancelEndsABlockedReceiveAndThePsLives) {
  LoopbackPs ps({.sync_contributions = 2, .shared_memory = GetParam()});
  auto stream = ps.data->OpenPushPull();
  GradientChunk chunk = ps.Chunk(0, 0, 0);
  *chunk.mutable_want() = Version(1, 10000);
  const std::vector<float> ones(1024, 1.0f);
  Releases releases;
  ASSERT_TRUE(stream->Send(chunk, BytesOf(ones), releases.Add()).ok());
  absl::Status received;
  std::thread receiver([&] {
    ValueChunk header;
    Payload payload;
    received = stream->Receive(&header, &payload);
  });
  while (ps.store->GetStatus().waits_parked() == 0) {
    std::this_thread::yield();
  }
  stream->Cancel();
  receiver.join();
  EXPECT_EQ(received.code(), absl::StatusCode::kCancelled) << received;
  EXPECT_EQ(stream->Send(chunk, {}, nullptr).code(),
            absl::StatusCode::kCancelled);
  stream.reset();
  EXPECT_TRUE(releases.AllCome());

  // The parked continuation now comes true for a stream that is gone.
  Contribution contribution(ps, 1, 0);
  for (GradientChunk& header : contribution.headers) {
    header.mutable_push()->set_index_in_step(1);
  }
  ASSERT_TRUE(PushBlocks(ps.data.get(), contribution.Next()).ok());
  EXPECT_EQ(ps.store->GetStatus().waits_parked(), 0u);
  EXPECT_TRUE(ps.link->Hello(kTimeout).ok());
}

TEST_P(PushPullTest, AStreamThatNeverSentAnythingEnds) {
  LoopbackPs ps({.shared_memory = GetParam()});
  auto stream = ps.data->OpenPushPull();
  stream.reset();
  stream = ps.data->OpenPushPull();
  stream->Cancel();
  ValueChunk header;
  Payload payload;
  EXPECT_EQ(stream->Receive(&header, &payload).code(),
            absl::StatusCode::kCancelled);
}

TEST_P(PushPullTest, AKilledServerIsUnavailableAndNamed) {
  LoopbackPs ps({.sync_contributions = 2, .shared_memory = GetParam()});
  const auto stream = ps.data->OpenPushPull();
  GradientChunk chunk = ps.Chunk(0, 0, 0);
  *chunk.mutable_want() = Version(1, 10000);
  const std::vector<float> ones(1024, 1.0f);
  Releases releases;
  ASSERT_TRUE(stream->Send(chunk, BytesOf(ones), releases.Add()).ok());
  while (ps.store->GetStatus().waits_parked() == 0) {
    std::this_thread::yield();
  }
  ps.Kill();
  ValueChunk header;
  Payload payload;
  const absl::Status status = stream->Receive(&header, &payload);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(stream->Receive(&header, &payload), status);
  EXPECT_EQ(stream->Send(chunk, BytesOf(ones), releases.Add()), status);
  EXPECT_TRUE(releases.AllCome());

  Contribution contribution(ps, 0, 1);
  const absl::Status push =
      PushBlocks(ps.data.get(), contribution.Next()).status();
  EXPECT_EQ(push, absl::UnavailableError("ps " + ps.address() +
                                         ": connection refused"));
}

// A ps of a release that did not tell its wire version.
class OldPs : public ParameterServer::Service {
  grpc::Status Hello(grpc::ServerContext*, const HelloRequest*,
                     HelloReply*) override {
    return grpc::Status::OK;
  }
};

TEST(GrpcTransportTest, APsOfAnotherWireVersionIsRefused) {
  OldPs ps;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&ps);
  const auto server = builder.BuildAndStart();
  const std::string address = absl::StrCat("127.0.0.1:", port);
  const auto transport = MakeGrpcTransport();
  EXPECT_EQ(transport->Connect(address)->Hello(kTimeout).status(),
            absl::InvalidArgumentError(absl::StrCat(
                "ps ", address, " speaks wire version 0, this process ",
                kWireVersion, ": run the same release of Weir in every task")));
}

TEST(GrpcTransportTest, NobodyListeningIsUnavailableAtOnce) {
  const auto transport = MakeGrpcTransport();
  const auto link = transport->Connect("127.0.0.1:1");
  EXPECT_EQ(link->Hello(kTimeout).status(),
            absl::UnavailableError("ps 127.0.0.1:1: connection refused"));
  const auto stream = transport->ConnectData("127.0.0.1:1")->OpenPushPull();
  GradientChunk chunk;
  ValueChunk header;
  Payload payload;
  stream->Send(chunk, {}, nullptr).IgnoreError();
  EXPECT_EQ(stream->Receive(&header, &payload).code(),
            absl::StatusCode::kUnavailable);
}

TEST(GrpcTransportTest, AnotherJobHistoryOrLayoutIsRefusedEverywhere) {
  LoopbackPs ps;
  for (int foreign = 0; foreign < 3; ++foreign) {
    Sender sender = ps.SenderOf(0);
    if (foreign == 0) {
      sender.set_job("other");
    } else if (foreign == 1) {
      sender.set_history(2);
    } else {
      sender.set_layout_fingerprint(3);
    }
    constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
    Contribution contribution(ps, 0, 0);
    for (GradientChunk& header : contribution.headers) {
      *header.mutable_sender() = sender;
    }
    EXPECT_EQ(PushBlocks(ps.data.get(), contribution.Next()).status().code(),
              kRefused);
    const auto stream = ps.data->OpenPushPull();
    ASSERT_TRUE(stream
                    ->Send(contribution.headers[0],
                           BytesOf(contribution.gradients[0]), nullptr)
                    .ok());
    ValueChunk header;
    Payload payload;
    EXPECT_EQ(stream->Receive(&header, &payload).code(), kRefused);
    ShutdownRequest shutdown;
    *shutdown.mutable_sender() = sender;
    EXPECT_EQ(ps.link->Shutdown(shutdown, kTimeout).code(), kRefused);
  }
  EXPECT_FALSE(ps.was_shut_down());
  EXPECT_EQ(ps.Values(0), std::vector<float>(1024, 0.0f));
}

TEST(GrpcTransportTest, ControlMethodsReachTheStore) {
  LoopbackPs ps({.declare = false});
  auto hello = ps.link->Hello(kTimeout);
  ASSERT_TRUE(hello.ok());
  EXPECT_EQ(hello->state(), EMPTY);
  EXPECT_EQ(hello->incarnation(), 77u);
  DeclareRequest declare;
  *declare.mutable_declaration() = ps.MakeDeclaration();
  const auto declared = ps.link->Declare(declare, kTimeout);
  ASSERT_TRUE(declared.ok()) << declared.status();

  Sender sender = ps.SenderOf(0);
  sender.set_layout_fingerprint(declared->layout_fingerprint());
  // In more chunks than requests may wait for their answers.
  const std::vector<float> values = Gradient(1024, 5);
  const std::span<const char> bytes = BytesOf(values);
  uint32_t offset = 0;
  const auto assigned = ps.link->Assign(
      kTimeout, [&](AssignChunk* header, std::span<const char>* payload) {
        if (offset == values.size()) {
          return false;
        }
        *header->mutable_sender() = sender;
        header->set_block(1);
        header->set_offset(offset);
        *payload = bytes.subspan(offset * sizeof(float), 2 * sizeof(float));
        offset += 2;
        return true;
      });
  ASSERT_TRUE(assigned.ok()) << assigned.status();
  EXPECT_EQ(assigned->elements(), 1024u);

  SetSlotsRequest slots;
  *slots.mutable_sender() = sender;
  slots.add_slot()->set_generation(1);
  ASSERT_TRUE(ps.link->SetSlots(slots, kTimeout).ok());
  EXPECT_EQ(ps.link->Hello(kTimeout)->state(), ACTIVE);
  EXPECT_EQ(ps.link->GetStatus({}, kTimeout)->declaration().job(), "test");
  EXPECT_EQ(ps.link->Declare(declare, kTimeout).status().code(),
            absl::StatusCode::kFailedPrecondition);
  RestoreRequest restore;
  *restore.mutable_declaration() = ps.MakeDeclaration();
  restore.set_checkpoint("ckpt-1");
  EXPECT_FALSE(ps.link->Restore(restore, kTimeout).ok());

  ShutdownRequest shutdown;
  *shutdown.mutable_sender() = sender;
  shutdown.set_code(static_cast<uint32_t>(absl::StatusCode::kCancelled));
  shutdown.set_reason("bye\n2026-01-01 chief/0 I forged");
  ASSERT_TRUE(ps.link->Shutdown(shutdown, kTimeout).ok());
  const auto end = std::chrono::steady_clock::now() + kTimeout;
  while (!ps.was_shut_down() && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  ASSERT_TRUE(ps.was_shut_down());
  EXPECT_EQ(ps.shut_down_why(),
            absl::CancelledError("bye\\n2026-01-01 chief/0 I forged"));
}

TEST(GrpcTransportTest, SnapshotRepliesFrozenThenWritten) {
  LoopbackPs ps;
  const std::string directory = MakeCheckpointDir();
  SnapshotRequest request;
  *request.mutable_sender() = ps.SenderOf(0);
  request.set_checkpoint(NameOf(directory));
  std::vector<SnapshotReply> replies;
  const absl::Status status = ps.link->Snapshot(
      request, kTimeout,
      [&](const SnapshotReply& reply) { replies.push_back(reply); });
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_TRUE(replies[0].frozen());
  EXPECT_TRUE(
      std::filesystem::exists(directory + "/" + replies[1].file().name()));
}

TEST(GrpcTransportTest, ADeadlineEndsASnapshotThatWaitsForItsVersion) {
  LoopbackPs ps({.sync_contributions = 1});
  SnapshotRequest request;
  *request.mutable_sender() = ps.SenderOf(0);
  request.set_checkpoint(NameOf(MakeCheckpointDir()));
  request.set_version(5);
  const absl::Status status = ps.link->Snapshot(
      request, std::chrono::milliseconds(200), [](const SnapshotReply&) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

TEST_P(PushPullTest, StreamsOfManyThreadsKeepTheirOrderAndLoseNothing) {
  LoopbackPs ps({.block_count = 16,
                 .slot_count = 4,
                 .queue_count = 2,
                 .shared_memory = GetParam()});
  constexpr uint64_t kContributions = 30;
  std::vector<std::thread> workers;
  for (int slot = 0; slot < 4; ++slot) {
    workers.emplace_back([&ps, slot] {
      const auto stream = ps.data->OpenPushPull();
      std::thread sender([&] {
        const std::vector<float> ones(1024, 1.0f);
        Releases releases;
        for (uint64_t number = 0; number < kContributions; ++number) {
          for (int block = 0; block < 16; ++block) {
            GradientChunk chunk = ps.Chunk(slot, number, block);
            *chunk.mutable_want() = Latest();
            const std::vector<float> gradient(ps.elements(block), 1.0f);
            const absl::Status sent =
                stream->Send(chunk, BytesOf(ones).first(ps.elements(block) * 4),
                             releases.Add());
            EXPECT_TRUE(sent.ok()) << sent;
          }
        }
        EXPECT_TRUE(releases.AllCome());
      });
      std::map<uint32_t, uint64_t> next;
      for (uint64_t i = 0; i < kContributions * 16; ++i) {
        ValueChunk header;
        Payload payload;
        const absl::Status status = stream->Receive(&header, &payload);
        EXPECT_TRUE(status.ok()) << status;
        EXPECT_EQ(header.receipt().sequence(), next[header.block()]++);
      }
      sender.join();
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  for (int block = 0; block < 16; ++block) {
    EXPECT_EQ(ps.Values(block),
              std::vector<float>(ps.elements(block), -4.0f * kContributions));
  }
}

}  // namespace
}  // namespace weir
