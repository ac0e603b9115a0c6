// Holds what only the shared-memory transport does. What it has in common with
// gRPC's is in grpc_transport_test.cc, PushPullTest.
#include "client/cc/transport/shm_transport.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/cc/transport/grpc_transport.h"
#include "client/cc/transport/shared_buffers.h"
#include "client/cc/transport/shm_connection.h"
#include "common/base/limits.h"
#include "common/io/shared_channel.h"
#include "common/io/unix_socket.h"
#include "proto/wire/shm_message.h"
#include "tests/support/loopback_ps.h"
#include "tests/support/shm_stranger.h"
#include "tests/support/wait_until.h"

namespace weir {
namespace {

constexpr auto kTimeout = std::chrono::seconds(20);
// Far more than a message holds inline.
constexpr int64_t kBlock = 65536;
constexpr size_t kMemory = size_t{8} << 20;

Want Latest() {
  Want want;
  want.set_latest(true);
  return want;
}

LoopbackPs::Options Large(int sync_contributions = 0) {
  return {.block_elements = kBlock,
          .sync_contributions = sync_contributions,
          .shared_memory = true};
}

std::span<const char> Bytes(const float* values, size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(float)};
}

std::string ShmName(const LoopbackPs& ps) {
  const auto hello = ps.link->Hello(kTimeout);
  return hello.ok() ? hello->shm_name() : "";
}

TEST(ShmTransportTest, TakesAStreamForEveryFourProcessors) {
  EXPECT_EQ(SharedStreams(0), 1);  // not known
  EXPECT_EQ(SharedStreams(2), 1);
  EXPECT_EQ(SharedStreams(7), 1);
  EXPECT_EQ(SharedStreams(16), 4);
  EXPECT_EQ(SharedStreams(192), 8);
  LoopbackPs ps;
  EXPECT_EQ(ps.data->UsefulStreams(3), 3);
}

TEST(ShmTransportTest, AppliesFromTheClientsBufferAndReadsWhereThePsHasIt) {
  LoopbackPs ps(Large());
  const std::shared_ptr<float> gradient = ps.transport->NewBuffer(kBlock);
  ASSERT_NE(gradient, nullptr);
  EXPECT_EQ(reinterpret_cast<size_t>(gradient.get()) % 64, 0u);
  std::fill_n(gradient.get(), kBlock, 2.0f);
  const auto stream = ps.data->OpenPushPull();
  GradientChunk chunk = ps.Chunk(0, 0, 1);
  *chunk.mutable_want() = Latest();
  std::atomic<int> released{0};
  ASSERT_TRUE(
      stream->Send(chunk, Bytes(gradient.get(), kBlock), [&] { ++released; })
          .ok());
  ValueChunk header;
  Payload held;
  ASSERT_TRUE(stream->Receive(&header, &held).ok());
  EXPECT_EQ(header.receipt().outcome(), Receipt::ACCEPTED);
  EXPECT_EQ(released, 1);
  EXPECT_EQ(held.pieces().size(), 1u);
  EXPECT_EQ(FloatsOf(held), std::vector<float>(kBlock, -2.0f));

  // The values that a reader holds are not changed under it.
  chunk = ps.Chunk(0, 1, 1);
  *chunk.mutable_want() = Latest();
  ASSERT_TRUE(
      stream->Send(chunk, Bytes(gradient.get(), kBlock), [&] { ++released; })
          .ok());
  Payload next;
  ASSERT_TRUE(stream->Receive(&header, &next).ok());
  EXPECT_EQ(FloatsOf(next), std::vector<float>(kBlock, -4.0f));
  EXPECT_EQ(FloatsOf(held), std::vector<float>(kBlock, -2.0f));
  EXPECT_EQ(ps.Values(1), std::vector<float>(kBlock, -4.0f));
}

TEST(ShmTransportTest, APayloadFromElsewhereIsCopied) {
  LoopbackPs ps(Large());
  const auto stream = ps.data->OpenPushPull();
  for (uint64_t sequence = 0; sequence < 5; ++sequence) {
    std::vector<float> gradient(kBlock, 1.0f);
    bool released = false;
    ASSERT_TRUE(stream
                    ->Send(ps.Chunk(0, sequence, 0), BytesOf(gradient),
                           [&] { released = true; })
                    .ok());
    EXPECT_TRUE(released);
    std::fill(gradient.begin(), gradient.end(), 100.0f);
    ValueChunk header;
    Payload payload;
    ASSERT_TRUE(stream->Receive(&header, &payload).ok());
  }
  EXPECT_EQ(ps.Values(0), std::vector<float>(kBlock, -5.0f));
}

// Sync keeps what came before its turn; the client may write its buffer again.
TEST(ShmTransportTest, WhatIsKeptForItsTurnIsNotTheClientsMemory) {
  LoopbackPs ps(Large(2));
  const std::shared_ptr<float> gradient = ps.transport->NewBuffer(kBlock);
  std::fill_n(gradient.get(), kBlock, 3.0f);
  const auto stream = ps.data->OpenPushPull();
  GradientChunk chunk = ps.Chunk(1, 0, 0);
  chunk.mutable_push()->set_index_in_step(1);
  bool released = false;
  ASSERT_TRUE(
      stream
          ->Send(chunk, Bytes(gradient.get(), kBlock), [&] { released = true; })
          .ok());
  ValueChunk header;
  Payload payload;
  ASSERT_TRUE(stream->Receive(&header, &payload).ok());
  EXPECT_TRUE(released);
  std::fill_n(gradient.get(), kBlock, 1.0f);
  ASSERT_TRUE(
      stream->Send(ps.Chunk(0, 0, 0), Bytes(gradient.get(), kBlock), nullptr)
          .ok());
  ASSERT_TRUE(stream->Receive(&header, &payload).ok());
  EXPECT_EQ(ps.Values(0), std::vector<float>(kBlock, -2.0f));
}

TEST(ShmTransportTest, APayloadOutlivesItsStreamAndThePs) {
  Payload payload;
  {
    LoopbackPs ps(Large());
    const auto stream = ps.data->OpenPushPull();
    GradientChunk ask;
    *ask.mutable_sender() = ps.SenderOf(0);
    *ask.mutable_want() = Latest();
    ASSERT_TRUE(stream->Send(ask, {}, nullptr).ok());
    ValueChunk header;
    ASSERT_TRUE(stream->Receive(&header, &payload).ok());
  }
  // Whatever it holds now, reading it is no crash.
  EXPECT_EQ(FloatsOf(payload).size(), static_cast<size_t>(kBlock));
}

// The ps ends a stream when its values have been read. A caller that waits with
// the last payload in hand must hear of the end.
TEST(ShmTransportTest, AnErrorIsHeardWithThePayloadBeforeStillInHand) {
  LoopbackPs ps(Large());
  const auto stream = ps.data->OpenPushPull();
  GradientChunk ask;
  *ask.mutable_sender() = ps.SenderOf(0);
  *ask.mutable_want() = Latest();
  ASSERT_TRUE(stream->Send(ask, {}, nullptr).ok());
  ValueChunk header;
  Payload payload;
  ASSERT_TRUE(stream->Receive(&header, &payload).ok());
  ASSERT_EQ(payload.bytes(), kBlock * sizeof(float));
  ask.set_block(9);  // there are four
  ASSERT_TRUE(stream->Send(ask, {}, nullptr).ok());
  EXPECT_EQ(stream->Receive(&header, &payload).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ShmTransportTest, APullOfManyBlocksPinsFewAtATime) {
  LoopbackPs ps(
      {.block_elements = kBlock, .block_count = 40, .shared_memory = true});
  const auto stream = ps.data->OpenPushPull();
  GradientChunk ask;
  *ask.mutable_sender() = ps.SenderOf(0);
  *ask.mutable_want() = Latest();
  ask.set_block_count(40);
  ASSERT_TRUE(stream->Send(ask, {}, nullptr).ok());
  for (int block = 0; block < 40; ++block) {
    ValueChunk header;
    Payload payload;
    ASSERT_TRUE(stream->Receive(&header, &payload).ok());
    EXPECT_EQ(header.block(), static_cast<uint32_t>(block));
    EXPECT_EQ(payload.bytes(), ps.elements(block) * sizeof(float));
  }
}

// Two requests of 2 MiB, as a client sends them, for blocks that go inline.
TEST(ShmTransportTest, APullOfManySmallBlocksKeepsItsSession) {
  constexpr uint32_t kBlocksARequest = 2048;
  LoopbackPs ps({.block_elements = 256,
                 .block_count = 2 * kBlocksARequest,
                 .shared_memory = true});
  const auto stream = ps.data->OpenPushPull();
  GradientChunk ask;
  *ask.mutable_sender() = ps.SenderOf(0);
  *ask.mutable_want() = Latest();
  ask.set_block_count(kBlocksARequest);
  ASSERT_TRUE(stream->Send(ask, {}, nullptr).ok());
  ask.set_block(kBlocksARequest);
  ASSERT_TRUE(stream->Send(ask, {}, nullptr).ok());
  // The ps takes this behind them, although nobody has read an answer yet.
  const std::vector<float> ones(256, 1.0f);
  ASSERT_TRUE(stream->Send(ps.Chunk(0, 0, 0), BytesOf(ones), nullptr).ok());
  EXPECT_TRUE(WaitUntil([&] { return ps.Values(0)[0] == -1.0f; }));
  size_t bytes = 0;
  for (uint32_t answer = 0; answer < 2 * kBlocksARequest + 1; ++answer) {
    ValueChunk header;
    Payload payload;
    const absl::Status status = stream->Receive(&header, &payload);
    ASSERT_TRUE(status.ok()) << answer << ": " << status;
    bytes += payload.bytes();
  }
  EXPECT_EQ(bytes, (256 * 2 * kBlocksARequest - 16) * sizeof(float));
}

TEST(ShmTransportTest, SixteenBitValuesComeThroughToo) {
  LoopbackPs ps(Large());
  const auto stream = ps.data->OpenPushPull();
  GradientChunk ask;
  *ask.mutable_sender() = ps.SenderOf(0);
  *ask.mutable_want() = Latest();
  ask.mutable_want()->set_encoding(BF16);
  ASSERT_TRUE(stream->Send(ask, {}, nullptr).ok());
  ValueChunk header;
  Payload payload;
  ASSERT_TRUE(stream->Receive(&header, &payload).ok());
  EXPECT_EQ(header.encoding(), BF16);
  EXPECT_EQ(payload.bytes(), kBlock * 2u);
}

TEST(ShmTransportTest, AutoTakesGrpcWhereNoneIsOfferedAndShmSaysWhy) {
  LoopbackPs ps;  // gRPC only
  for (const bool fall_back : {true, false}) {
    const auto transport = MakeShmTransport(MakeGrpcTransport(), fall_back);
    const auto link = transport->ConnectData(ps.address());
    const auto stream = link->OpenPushPull();
    GradientChunk ask;
    *ask.mutable_sender() = ps.SenderOf(0);
    *ask.mutable_want() = Latest();
    const absl::Status sent = stream->Send(ask, {}, nullptr);
    ValueChunk header;
    Payload payload;
    if (fall_back) {
      EXPECT_TRUE(sent.ok()) << sent;
      EXPECT_TRUE(stream->Receive(&header, &payload).ok());
      continue;
    }
    EXPECT_EQ(sent.code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(sent.message().find("offers no shared memory"),
              std::string::npos);
    EXPECT_EQ(stream->Receive(&header, &payload), sent);
  }
}

// Pieces of memory that this process, client and ps in one, has mapped to share
// them.
size_t SharedPieces() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("memfd:weir") != std::string::npos ? 1 : 0;
  }
  return count;
}

TEST(ShmTransportTest, UpdatesOfRowsAskAgainWhereThePsHadNoSessionToSpare) {
  LoopbackPs::Options options = Large();
  options.table_dim = 16;
  LoopbackPs ps(options);
  const auto transport =
      MakeShmTransport(MakeGrpcTransport(), /*fall_back=*/true);
  const auto link = transport->ConnectData(ps.address());
  uint64_t sequence = 0;
  const auto update = [&] {
    int sent = 0;
    return link
        ->PushRows(kTimeout,
                   [&](PushRowsChunk* chunk, std::span<const char>*) {
                     *chunk->mutable_sender() = ps.SenderOf(0);
                     chunk->mutable_push()->set_sequence(sequence);
                     chunk->set_last(true);
                     return sent++ == 0;
                   })
        .status();
  };
  const std::string name = ShmName(ps);
  std::deque<UnixSocket> others;
  for (size_t i = 0; i < kShmSessionsMax; ++i) {
    others.push_back(*UnixSocket::Connect(name));
  }
  const size_t pieces = SharedPieces();
  EXPECT_EQ(update(), absl::OkStatus());
  EXPECT_EQ(SharedPieces(), pieces);
  others.clear();
  EXPECT_TRUE(WaitUntil([&] {
    ++sequence;
    return update().ok() && SharedPieces() > pieces;
  }));
}

TEST(ShmTransportTest, ChoicesAreNamed) {
  EXPECT_EQ(*ParseTransportChoice("auto"), TransportChoice::kAuto);
  EXPECT_EQ(*ParseTransportChoice("grpc"), TransportChoice::kGrpc);
  EXPECT_EQ(*ParseTransportChoice("shm"), TransportChoice::kShm);
  EXPECT_NE(ParseTransportChoice("tcp").status().message().find("'tcp'"),
            std::string::npos);
}

// A ps that takes a session, and then neither answers nor ends it.
TEST(ShmTransportTest, APsThatIsStoppedKeepsTheBytesThatItWasGiven) {
  const std::string name = "weir.test.stopped." + std::to_string(getpid());
  auto listener = *UnixSocket::Listen(name);
  UnixSocket ps;
  const auto arena = *SharedMemory::Create(4096);
  std::thread opening([&] {
    ps = *listener.Accept();
    ShmOpening record;
    EXPECT_TRUE(ps.Receive(RecordBytes(&record)).ok());
    record.bytes = arena->bytes();
    EXPECT_TRUE(ps.Send(RecordBytes(&record), arena->fd()).ok());
  });
  const auto buffers = std::make_shared<SharedBuffers>();
  auto connection = *ShmConnection::Open(
      name, std::string(kShmTicketBytes, 't'), "stopped", buffers);
  opening.join();
  const std::shared_ptr<float> gradient =
      SharedBuffers::New(buffers, kBlock * sizeof(float));
  std::fill_n(gradient.get(), kBlock, 1.0f);
  int released = 0;
  ASSERT_TRUE(connection
                  ->Send(ShmRequest::kChunk, "chunk",
                         Bytes(gradient.get(), kBlock), [&] { ++released; })
                  .ok());
  ShmRegion region;
  auto fd = ps.Receive(RecordBytes(&region));
  const auto seen = *SharedMemory::Map(*std::move(fd), region.bytes,
                                       SharedMemory::Access::kRead);
  connection = nullptr;
  EXPECT_EQ(released, 1);
  std::fill_n(gradient.get(), kBlock / 2, 2.0f);
  EXPECT_EQ(gradient.get()[0], 2.0f);
  EXPECT_EQ(gradient.get()[kBlock - 1], 1.0f);
  const auto* const values = reinterpret_cast<const float*>(seen->data());
  EXPECT_EQ(std::count(values, values + kBlock, 1.0f), kBlock);
  // Payloads that are sent from there from now on are copied.
  EXPECT_EQ(buffers->Find(Bytes(gradient.get(), kBlock)), nullptr);
}

// ------------------------------------------------------- clients that are not

// One that has opened its session.
struct Stranger : ShmStranger {
  explicit Stranger(const LoopbackPs& ps)
      : Stranger(*ps.link->Hello(kTimeout)) {}
  explicit Stranger(const HelloReply& hello) : ShmStranger(hello.shm_name()) {
    EXPECT_TRUE(Open(hello.shm_ticket()).ok());
  }
};

TEST(ShmTransportTest, AStrangersOpeningIsTurnedAway) {
  LoopbackPs ps(Large());
  const std::string name = ShmName(ps);
  ASSERT_NE(name, "");
  const auto turned_away = [&](const ShmOpening& opening, int fd) {
    auto socket = UnixSocket::Connect(name);
    EXPECT_TRUE(socket->Send(RecordOf(opening), fd).ok());
    char record[sizeof(ShmOpening)];
    EXPECT_EQ(socket->Receive(record).status().code(),
              absl::StatusCode::kUnavailable);
  };
  const auto memory = *SharedMemory::Create(SharedChannel::kMemoryBytes);
  // Each brings a ticket, and the last ones are whole but for that.
  const auto whole = [&] {
    ShmOpening opening;
    opening.bytes = memory->bytes();
    const std::string ticket = ps.link->Hello(kTimeout)->shm_ticket();
    std::copy(ticket.begin(), ticket.end(), opening.ticket.begin());
    return opening;
  };
  const ShmOpening good = whole();
  ShmOpening other = good;
  other.magic = 1;
  turned_away(other, memory->fd());
  other = good;
  other.bytes = 4096;
  turned_away(other, memory->fd());
  turned_away(whole(), -1);
  // Could be cut short under the ps.
  const FileDescriptor unsealed(memfd_create("t", MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), static_cast<off_t>(good.bytes)), 0);
  turned_away(whole(), unsealed.get());
  // A ticket that nobody gave out, and one that was used.
  other = good;
  other.ticket[0] ^= 1;
  turned_away(other, memory->fd());
  const ShmOpening once = whole();
  ShmStranger first(name);
  EXPECT_TRUE(first.Open({once.ticket.begin(), once.ticket.end()}).ok());
  turned_away(once, memory->fd());
  EXPECT_TRUE(ps.link->Hello(kTimeout).ok());
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// How a session ends that sends one such request.
absl::StatusCode EndOf(const LoopbackPs& ps, const ShmRequest& head,
                       const std::string& text) {
  Stranger stranger(ps);
  EXPECT_TRUE(*WriteShm(&stranger.channel, head, text, {}));
  return stranger.End();
}

// The same with 8 MiB of the client's memory, which are said to be `bytes`.
absl::StatusCode EndWithMemory(const LoopbackPs& ps, uint64_t bytes,
                               const std::string& contents,
                               const ShmRequest& head,
                               const std::string& text) {
  Stranger stranger(ps);
  const auto memory = *SharedMemory::Create(kMemory);
  contents.copy(memory->data(), contents.size());
  EXPECT_TRUE(stranger.SendRegion(1, bytes, memory->fd()).ok());
  EXPECT_TRUE(*WriteShm(&stranger.channel, head, text, {}));
  return stranger.End();
}

TEST(ShmTransportTest, ABrokenRequestEndsItsSessionOnly) {
  LoopbackPs ps(Large());
  const std::string name = ShmName(ps);
  const auto good = ps.data->OpenPushPull();
  const std::string chunk = ps.Chunk(0, 0, 0).SerializeAsString();
  ShmRequest head;
  EXPECT_EQ(EndOf(ps, head, "\xff\xff\xff"), kInvalid);
  head.kind = 9;
  EXPECT_EQ(EndOf(ps, head, chunk), kInvalid);
  for (const auto kind : {ShmRequest::kPullRows, ShmRequest::kPushRows}) {
    head.kind = kind;
    EXPECT_EQ(EndOf(ps, head, "\xff\xff\xff"), kInvalid);
    // A whole message that does not say who sends it.
    EXPECT_NE(EndOf(ps, head, ""), absl::StatusCode::kOk);
  }
  head = ShmRequest();
  head.payload.bytes = 100;  // but nothing inline
  EXPECT_EQ(EndOf(ps, head, chunk), kInvalid);
  {
    Stranger stranger(ps);
    ASSERT_TRUE(stranger.channel.TryWrite(std::string("short"), {}));
    EXPECT_EQ(stranger.End(), kInvalid);
  }
  {
    // A counter that cannot be; seen when the ps next looks, without a bell.
    Stranger stranger(ps);
    const uint64_t nonsense = ~uint64_t{0};
    std::memcpy(stranger.memory->data() + 128, &nonsense, sizeof(nonsense));
    EXPECT_EQ(stranger.End(), absl::StatusCode::kUnavailable);
  }
  const std::vector<float> ones(kBlock, 1.0f);
  ASSERT_TRUE(good->Send(ps.Chunk(0, 0, 0), BytesOf(ones), nullptr).ok());
  ValueChunk header;
  Payload payload;
  EXPECT_TRUE(good->Receive(&header, &payload).ok());
  EXPECT_EQ(ps.Values(0), std::vector<float>(kBlock, -1.0f));
}

TEST(ShmTransportTest, ARequestOutsideItsMemoryEndsItsSessionOnly) {
  LoopbackPs ps(Large());
  const std::string name = ShmName(ps);
  const auto good = ps.data->OpenPushPull();
  const std::string chunk = ps.Chunk(0, 0, 0).SerializeAsString();
  ShmRequest head;
  head.payload = {1, kMemory - 100, kBlock * 4};
  EXPECT_EQ(EndWithMemory(ps, kMemory, "", head, chunk), kInvalid);
  head.payload = {1, 0, kBlock * 4};
  EXPECT_EQ(EndWithMemory(ps, 1 << 30, "", head, chunk), kInvalid);
  head = ShmRequest();
  head.kind = ShmRequest::kPullRows;
  head.chunk = {1, kMemory - 100, 1000};
  EXPECT_EQ(EndWithMemory(ps, kMemory, "", head, ""), kInvalid);
  // A chunk that is longer than gRPC would take is refused as such; a shorter
  // one is read, and is then a request of a sender that nobody knows.
  for (const size_t padding : {size_t{3} << 20, size_t{5} << 20}) {
    PullRowsChunk padded;
    PullRowsChunk::GetReflection()
        ->MutableUnknownFields(&padded)
        ->AddLengthDelimited(1000)
        ->resize(padding);
    const std::string contents = padded.SerializeAsString();
    head.chunk = {1, 0, contents.size()};
    absl::StatusCode expected = kInvalid;
    if (padding < kShmLongChunkBytes) {
      expected = absl::StatusCode::kFailedPrecondition;
    }
    EXPECT_EQ(EndWithMemory(ps, kMemory, contents, head, ""), expected);
  }
  const std::vector<float> ones(kBlock, 1.0f);
  ASSERT_TRUE(good->Send(ps.Chunk(0, 0, 0), BytesOf(ones), nullptr).ok());
  ValueChunk header;
  Payload payload;
  EXPECT_TRUE(good->Receive(&header, &payload).ok());
}

TEST(ShmTransportTest, ABadRegionEndsItsSessionOnly) {
  LoopbackPs ps(Large());
  const std::string name = ShmName(ps);
  const auto good = ps.data->OpenPushPull();
  const auto memory = *SharedMemory::Create(kMemory);
  const FileDescriptor unsealed(memfd_create("t", MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), kMemory), 0);
  {
    Stranger stranger(ps);
    ASSERT_TRUE(stranger.SendRegion(1, 1, memory->fd()).ok());
    EXPECT_EQ(stranger.End(), kInvalid) << "another size";
  }
  {
    Stranger stranger(ps);
    ASSERT_TRUE(stranger.SendRegion(1, kMemory, unsealed.get()).ok());
    EXPECT_EQ(stranger.End(), kInvalid) << "could be cut short";
  }
  {
    Stranger stranger(ps);
    ASSERT_TRUE(stranger.SendRegion(1, kMemory, memory->fd()).ok());
    ASSERT_TRUE(stranger.SendRegion(1, kMemory, memory->fd()).ok());
    EXPECT_EQ(stranger.End(), kInvalid) << "a number twice";
  }
  {
    Stranger stranger(ps);
    ASSERT_TRUE(stranger.socket.Send("x", -1).ok());
    EXPECT_EQ(stranger.End(), kInvalid) << "another length";
  }
  const std::vector<float> ones(kBlock, 1.0f);
  ASSERT_TRUE(good->Send(ps.Chunk(0, 0, 0), BytesOf(ones), nullptr).ok());
  ValueChunk header;
  Payload payload;
  EXPECT_TRUE(good->Receive(&header, &payload).ok());
}

// However many records of that kind a client sends, the log gets one line.
TEST(ShmTransportTest, ASessionEndsAtItsFirstBadRegion) {
  LoopbackPs ps(Large());
  const auto memory = *SharedMemory::Create(kMemory);
  testing::internal::CaptureStderr();  // of a log that nobody has set up
  {
    Stranger stranger(ps);
    for (int i = 0; i < 100; ++i) {
      // Fails once the ps has closed its end.
      stranger.SendRegion(1, 1, memory->fd()).IgnoreError();
    }
    ASSERT_EQ(stranger.End(), kInvalid);
    char record[sizeof(ShmOpening)];
    EXPECT_EQ(stranger.socket.Receive(record).status().code(),
              absl::StatusCode::kUnavailable);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  size_t lines = 0;
  for (size_t at = 0; (at = log.find("shared memory: ", at)) != log.npos;
       ++at) {
    ++lines;
  }
  EXPECT_EQ(lines, 1u) << log;
}

// A region of the model's size must fit beside the others that a worker has.
TEST(ShmTransportTest, AClientHandsOverABoundedNumberOfBytes) {
  LoopbackPs ps(Large());
  const std::string name = ShmName(ps);
  const uint64_t model = (kBlock * 4 - 16) * sizeof(float);
  const uint64_t most = 2 * model + kShmRegionBytesMax;
  Stranger stranger(ps);
  const auto memory = *SharedMemory::Create(most);  // nothing of it is touched
  ASSERT_TRUE(stranger.SendRegion(1, most, memory->fd()).ok());
  ShmRequest head;
  head.payload = {1, most, 1};
  const std::string chunk = ps.Chunk(0, 0, 0).SerializeAsString();
  EXPECT_TRUE(*WriteShm(&stranger.channel, head, chunk, {}));
  EXPECT_EQ(stranger.End(), kInvalid) << "it was mapped, and is too short";

  Stranger greedy(ps);
  const auto page = *SharedMemory::Create(4096);
  ASSERT_TRUE(greedy.SendRegion(1, most, memory->fd()).ok());
  ASSERT_TRUE(greedy.SendRegion(2, 4096, page->fd()).ok());
  EXPECT_EQ(greedy.End(), absl::StatusCode::kResourceExhausted);
}

TEST(ShmTransportTest, AClientHandsOverABoundedNumberOfRegions) {
  LoopbackPs ps(Large());
  Stranger stranger(ps);
  const auto page = *SharedMemory::Create(4096);
  for (uint64_t id = 1; id <= kShmRegionsMax; ++id) {
    ASSERT_TRUE(stranger.SendRegion(id, 4096, page->fd()).ok()) << id;
  }
  ASSERT_TRUE(stranger.SendRegion(kShmRegionsMax + 1, 4096, page->fd()).ok());
  EXPECT_EQ(stranger.End(), absl::StatusCode::kResourceExhausted);
}

TEST(ShmTransportTest, TooManyOpenRequestsEndTheSession) {
  LoopbackPs ps(Large(2));
  Stranger stranger(ps);
  GradientChunk ask;
  *ask.mutable_sender() = ps.SenderOf(0);
  ask.mutable_want()->set_version(1);
  ask.mutable_want()->set_timeout_ms(10000);
  for (uint64_t i = 0; i < kShmUnansweredMax + 1; ++i) {
    ASSERT_TRUE(*WriteShm(&stranger.channel, ShmRequest(),
                          ask.SerializeAsString(), {}));
  }
  EXPECT_EQ(stranger.End(), absl::StatusCode::kResourceExhausted);
}

TEST(ShmTransportTest, AnswersThatNobodyReadsEndTheSession) {
  LoopbackPs::Options options = Large();
  options.table_dim = 16;
  LoopbackPs ps(options);
  Stranger stranger(ps);
  ShmRequest head;
  head.kind = ShmRequest::kPullRows;
  PullRowsChunk ask;
  *ask.mutable_sender() = ps.SenderOf(0);
  *ask.mutable_want() = Latest();
  const std::string text = ask.SerializeAsString();
  const auto end = std::chrono::steady_clock::now() + kTimeout;
  // Their answers do not fit into the ring.
  for (int sent = 0; sent < 20000 && std::chrono::steady_clock::now() < end;) {
    sent += *WriteShm(&stranger.channel, head, text, {}) ? 1 : 0;
  }
  EXPECT_EQ(stranger.End(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace weir
