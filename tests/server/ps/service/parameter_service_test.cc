// The wire as a client sees it that was generated from proto/ps.proto and knows
// nothing of Weir's codec, and as a hostile one does.
#include "server/ps/service/parameter_service.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/support/sync_stream.h>

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/math/random.h"
#include "gtest/gtest.h"
#include "proto/ps.grpc.pb.h"
#include "proto/wire/id_list.h"
#include "proto/wire/wire_version.h"
#include "server/ps/block/parking.h"
#include "server/ps/service/grpc_call.h"
#include "tests/common/temp_dir.h"
#include "tests/support/faulty_files.h"
#include "tests/support/loopback_ps.h"
#include "tests/support/wait_until.h"

namespace weir {
namespace {

constexpr auto kTimeout = std::chrono::seconds(20);

std::unique_ptr<grpc::ClientContext> Context() {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + kTimeout);
  return context;
}

// A client from the .proto alone, with gRPC's defaults.
struct PlainClient {
  explicit PlainClient(const LoopbackPs& ps)
      : channel(grpc::CreateChannel(ps.address(),
                                    grpc::InsecureChannelCredentials())),
        stub(ParameterServer::NewStub(channel)) {}
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<ParameterServer::Stub> stub;
};

GradientChunk WithGradient(const LoopbackPs& ps, uint64_t sequence, int block,
                           float value) {
  GradientChunk chunk = ps.Chunk(0, sequence, block);
  const std::vector<float> gradient(ps.elements(block), value);
  chunk.set_payload(BytesOf(gradient).data(), BytesOf(gradient).size());
  return chunk;
}

std::string BytesOfBlock(const LoopbackPs& ps, int block) {
  const std::vector<float> values = ps.Values(block);
  return std::string(BytesOf(values).data(), BytesOf(values).size());
}

// Files whose Create does not come back until End.
struct HangingFiles {
  HangingFiles() : files(Files::Real()) {
    files.Watch([this](const std::string& call) {
      MutexLock lock(&mutex);
      hangs = hangs || call.rfind("create ", 0) == 0;
      while (hangs && !ended && call.rfind("create ", 0) == 0) {
        changed.Wait(&mutex);
      }
    });
  }
  void End() {
    MutexLock lock(&mutex);
    ended = true;
    changed.NotifyAll();
  }
  FaultyFiles files;
  Mutex mutex;
  CondVar changed;
  bool hangs ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;
};

TEST(ParameterServiceTest, AFileThatHangsHoldsUpNoRestore) {
  HangingFiles disk;
  LoopbackPs ps({.files = &disk.files});
  SnapshotRequest snapshot;
  *snapshot.mutable_sender() = ps.SenderOf(0);
  snapshot.set_checkpoint(NameOf(MakeCheckpointDir()));
  absl::Status written;
  std::thread writer([&] {
    written = ps.link->Snapshot(snapshot, std::chrono::minutes(1),
                                [](const SnapshotReply&) {});
  });
  EXPECT_TRUE(WaitUntil([&] {
    MutexLock lock(&disk.mutex);
    return disk.hangs;
  }));
  RestoreRequest restore;
  *restore.mutable_declaration() = ps.MakeDeclaration();
  restore.set_checkpoint("ckpt-1");
  EXPECT_EQ(ps.link->Restore(restore, kTimeout).status().code(),
            absl::StatusCode::kNotFound);
  disk.End();
  writer.join();
  EXPECT_TRUE(written.ok()) << written;
}

TEST(ParameterServiceTest, APlainProtobufClientPushesAndPulls) {
  // 256 Ki elements: a whole chunk of 1 MiB fits gRPC's default.
  LoopbackPs ps({.block_elements = int64_t{256} * 1024, .block_count = 2});
  PlainClient client(ps);
  ValueChunk value;
  auto context = Context();
  auto pushed = client.stub->PushPull(context.get());
  for (int block = 0; block < 2; ++block) {
    ASSERT_TRUE(pushed->Write(WithGradient(ps, 0, block, 1.5f + block)));
    ASSERT_TRUE(pushed->Read(&value));
    EXPECT_EQ(value.receipt().outcome(), Receipt::ACCEPTED);
  }
  pushed->WritesDone();
  EXPECT_TRUE(pushed->Finish().ok());
  EXPECT_EQ(ps.Values(1), std::vector<float>(ps.elements(1), -2.5f));

  // All blocks, then two by name.
  for (const std::vector<uint32_t>& asked :
       {std::vector<uint32_t>{}, std::vector<uint32_t>{1, 0}}) {
    PullRequest request;
    *request.mutable_sender() = ps.SenderOf(0);
    request.mutable_want()->set_latest(true);
    request.mutable_block()->Add(asked.begin(), asked.end());
    context = Context();
    auto reader = client.stub->Pull(context.get(), request);
    std::vector<uint32_t> blocks;
    while (reader->Read(&value)) {
      EXPECT_EQ(value.payload(),
                BytesOfBlock(ps, static_cast<int>(value.block())));
      EXPECT_EQ(value.version(), 1u);
      blocks.push_back(value.block());
    }
    EXPECT_TRUE(reader->Finish().ok());
    EXPECT_EQ(blocks, asked.empty() ? (std::vector<uint32_t>{0, 1}) : asked);
  }

  context = Context();
  auto stream = client.stub->PushPull(context.get());
  GradientChunk chunk = WithGradient(ps, 1, 0, -8.0f);
  chunk.mutable_want()->set_latest(true);
  ASSERT_TRUE(stream->Write(chunk));
  ASSERT_TRUE(stream->Read(&value));
  EXPECT_EQ(value.receipt().outcome(), Receipt::ACCEPTED);
  EXPECT_EQ(value.payload(), BytesOfBlock(ps, 0));
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&value));
  EXPECT_TRUE(stream->Finish().ok());
}

// A ps answers a Pull whose want ran out with DEADLINE_EXCEEDED: there is no
// way to say it of one block.
TEST(ParameterServiceTest, APullWhoseWantRunsOutEndsWithTheDeadline) {
  LoopbackPs ps({.sync_contributions = 1});
  PlainClient client(ps);
  PullRequest request;
  *request.mutable_sender() = ps.SenderOf(0);
  request.mutable_want()->set_version(1);
  request.mutable_want()->set_timeout_ms(100);
  auto context = Context();
  auto reader = client.stub->Pull(context.get(), request);
  ValueChunk value;
  EXPECT_FALSE(reader->Read(&value));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);

  request.mutable_sender()->set_job("other");
  context = Context();
  reader = client.stub->Pull(context.get(), request);
  EXPECT_FALSE(reader->Read(&value));
  EXPECT_EQ(reader->Finish().error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

TEST(ParameterServiceTest, WritesDoneStillGetsTheAnswersThatArePending) {
  LoopbackPs ps({.sync_contributions = 2});
  PlainClient client(ps);
  auto context = Context();
  auto stream = client.stub->PushPull(context.get());
  GradientChunk chunk = WithGradient(ps, 0, 0, 1.0f);
  chunk.mutable_want()->set_version(1);
  chunk.mutable_want()->set_timeout_ms(10000);
  ASSERT_TRUE(stream->Write(chunk));
  stream->WritesDone();
  ASSERT_TRUE(
      WaitUntil([&] { return ps.store->GetStatus().waits_parked() == 1; }));
  GradientChunk other = WithGradient(ps, 0, 0, 3.0f);
  other.mutable_sender()->set_slot(1);
  other.mutable_push()->set_index_in_step(1);
  auto second = Context();
  auto pushed = client.stub->PushPull(second.get());
  ValueChunk value;
  ASSERT_TRUE(pushed->Write(other));
  ASSERT_TRUE(pushed->Read(&value));
  pushed->WritesDone();
  ASSERT_TRUE(pushed->Finish().ok());
  ASSERT_TRUE(stream->Read(&value));
  EXPECT_EQ(value.version(), 1u);
  EXPECT_FALSE(stream->Read(&value));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(ParameterServiceTest, AnOversizedMessageIsRefusedAndThePsLives) {
  LoopbackPs ps;
  PlainClient client(ps);
  GradientChunk chunk = ps.Chunk(0, 0, 0);
  chunk.set_payload(std::string((4 << 20) + (128 << 10), 'x'));
  PushRowsChunk rows;
  rows.set_payload(chunk.payload());
  PushRowsReply reply;
  auto context = Context();
  auto writer = client.stub->PushRows(context.get(), &reply);
  writer->Write(rows);
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(status.error_message().find("larger than max"), std::string::npos)
      << status.error_message();

  context = Context();
  auto stream = client.stub->PushPull(context.get());
  stream->Write(chunk);
  ValueChunk value;
  EXPECT_FALSE(stream->Read(&value));
  EXPECT_EQ(stream->Finish().error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(ps.link->Hello(kTimeout).ok());
  EXPECT_EQ(ps.Values(0), std::vector<float>(1024, 0.0f));
}

TEST(ParameterServiceTest, ACallerOfAnotherWireVersionIsRefused) {
  LoopbackPs ps;
  const PlainClient client(ps);
  HelloReply reply;
  for (const uint32_t version : {0u, kWireVersion + 1, kWireVersion}) {
    HelloRequest request;
    request.set_wire_version(version);
    const grpc::Status status =
        client.stub->Hello(Context().get(), request, &reply);
    if (version == kWireVersion) {
      EXPECT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(reply.wire_version(), kWireVersion);
    } else {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
      EXPECT_NE(status.error_message().find(
                    absl::StrCat("speaks wire version ", version,
                                 ", this process ", kWireVersion)),
                std::string::npos)
          << status.error_message();
    }
  }
}

TEST(ParameterServiceTest, NoMoreThan256RequestsWaitForAnswers) {
  LoopbackPs ps({.block_count = 1, .slot_count = 2, .sync_contributions = 2});
  const auto stream = ps.data->OpenPushPull();
  constexpr int kRequests = 300;
  const std::vector<float> ones(ps.elements(0), 1.0f);
  // The first is taken, the others are duplicates; all want what is not there.
  GradientChunk chunk = ps.Chunk(0, 0, 0);
  chunk.mutable_want()->set_version(1);
  chunk.mutable_want()->set_timeout_ms(10000);
  for (int i = 0; i < kRequests; ++i) {
    ASSERT_TRUE(stream->Send(chunk, BytesOf(ones), nullptr).ok());
  }
  const auto read = [&ps] {
    const PsStatus status = ps.store->GetStatus();
    return status.chunks_accepted() + status.chunks_duplicate();
  };
  ASSERT_TRUE(WaitUntil([&] { return read() >= GrpcCall::kUnansweredMax; }));
  // The queue's one thread has had many chances to read on.
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(ps.link->Hello(kTimeout).ok());
  }
  EXPECT_EQ(read(), uint64_t{GrpcCall::kUnansweredMax});

  const auto other = ps.data->OpenPushPull();
  GradientChunk last = ps.Chunk(1, 0, 0);
  last.mutable_push()->set_index_in_step(1);
  ASSERT_TRUE(other->Send(last, BytesOf(ones), nullptr).ok());
  ValueChunk header;
  Payload payload;
  for (int i = 0; i < kRequests; ++i) {
    ASSERT_TRUE(stream->Receive(&header, &payload).ok());
    EXPECT_EQ(header.version(), 1u);
  }
}

TEST(ParameterServiceTest, RefusesRequestsThatMeanNothing) {
  LoopbackPs ps;
  ValueChunk header;
  Payload payload;
  GradientChunk nothing;
  *nothing.mutable_sender() = ps.SenderOf(0);
  GradientChunk encoding = nothing;
  encoding.mutable_want()->set_latest(true);
  encoding.mutable_want()->set_encoding(static_cast<Encoding>(9));
  GradientChunk far = nothing;
  far.mutable_want()->set_latest(true);
  far.set_block(4);
  GradientChunk long_run = nothing;
  long_run.mutable_want()->set_latest(true);
  long_run.set_block_count(0xffffffff);
  for (const GradientChunk& chunk : {nothing, encoding, far, long_run}) {
    const auto stream = ps.data->OpenPushPull();
    ASSERT_TRUE(stream->Send(chunk, {}, nullptr).ok());
    absl::Status status;
    while (status.ok()) {
      status = stream->Receive(&header, &payload);
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
}

// Sends `bytes` as one message of a bulk method and returns how it ended.
grpc::StatusCode SendBytes(grpc::Channel* channel, const char* method,
                           const std::string& bytes) {
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer buffer(&slice, 1);
  const grpc::internal::RpcMethod rpc(
      method, grpc::internal::RpcMethod::BIDI_STREAMING);
  auto context = Context();
  const std::unique_ptr<
      grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>>
      stream(grpc::internal::ClientReaderWriterFactory<
             grpc::ByteBuffer, grpc::ByteBuffer>::Create(channel, rpc,
                                                         context.get()));
  stream->Write(buffer);
  stream->WritesDone();
  grpc::ByteBuffer answer;
  while (stream->Read(&answer)) {
  }
  return stream->Finish().error_code();
}

TEST(ParameterServiceTest, GarbageIsInvalidArgumentAndThePsLives) {
  LoopbackPs ps;
  PlainClient client(ps);
  RandomStream random(11);
  const std::string good = WithGradient(ps, 0, 0, 1.0f).SerializeAsString();
  for (const char* method :
       {"/weir.ParameterServer/PushPull", "/weir.ParameterServer/Pull",
        "/weir.ParameterServer/Assign"}) {
    EXPECT_EQ(SendBytes(client.channel.get(), method, "\xff\xff\xff\xff"),
              grpc::StatusCode::INVALID_ARGUMENT)
        << method;
    for (int i = 0; i < 100; ++i) {
      std::string bytes = good.substr(0, random.NextBelow(200));
      if (!bytes.empty()) {
        bytes[random.NextBelow(static_cast<uint32_t>(bytes.size()))] =
            static_cast<char>(random.Next32());
      }
      const grpc::StatusCode code =
          SendBytes(client.channel.get(), method, bytes);
      EXPECT_NE(code, grpc::StatusCode::UNAVAILABLE) << method;
      EXPECT_NE(code, grpc::StatusCode::INTERNAL) << method;
      EXPECT_NE(code, grpc::StatusCode::DEADLINE_EXCEEDED) << method;
    }
  }
  EXPECT_TRUE(ps.link->Hello(kTimeout).ok());
}

TEST(ParameterServiceTest, AnUnknownMethodIsUnimplemented) {
  LoopbackPs ps;
  PlainClient client(ps);
  EXPECT_EQ(
      SendBytes(client.channel.get(), "/weir.ParameterServer/Nothing", "x"),
      grpc::StatusCode::UNIMPLEMENTED);
}

TEST(ParameterServiceTest, BytesThatAreNoRequestForRowsEndTheCall) {
  LoopbackPs ps;
  PlainClient client(ps);
  for (const char* method :
       {"/weir.ParameterServer/PullRows", "/weir.ParameterServer/PushRows"}) {
    EXPECT_EQ(SendBytes(client.channel.get(), method, "x"),
              grpc::StatusCode::INVALID_ARGUMENT);
    // A whole message that says nothing of whom it is from.
    EXPECT_NE(SendBytes(client.channel.get(), method, ""),
              grpc::StatusCode::OK);
  }
}

TEST(ParameterServiceTest, SixtyFourStreamsOnOneConnectionAreServed) {
  LoopbackPs ps({.block_count = 1, .slot_count = 64});
  std::vector<std::unique_ptr<PushPullStream>> streams;
  const std::vector<float> ones(ps.elements(0), 1.0f);
  for (int slot = 0; slot < 60; ++slot) {
    streams.push_back(ps.data->OpenPushPull());
    ASSERT_TRUE(streams.back()
                    ->Send(ps.Chunk(slot, 0, 0), BytesOf(ones), nullptr)
                    .ok());
  }
  ValueChunk header;
  Payload payload;
  for (const auto& stream : streams) {
    ASSERT_TRUE(stream->Receive(&header, &payload).ok());
  }
  EXPECT_EQ(ps.Values(0), std::vector<float>(ps.elements(0), -60.0f));
}

TEST(ParameterServiceTest, AnAddressInUseIsNamed) {
  LoopbackPs ps;
  PsServer::Options options;
  options.address = ps.address();
  const auto second = PsServer::Create(options, ps.store.get());
  EXPECT_EQ(second.status(),
            absl::UnavailableError("cannot listen on " + ps.address() +
                                   ": Address already in use"));
  options.address = "nonsense";
  EXPECT_FALSE(PsServer::Create(options, ps.store.get()).ok());
  options.address = "127.0.0.1:0";
  options.queue_count = 0;
  EXPECT_EQ(PsServer::Create(options, ps.store.get()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ParameterServiceTest, LookupsThatNobodyReadsTheAnswersOfWait) {
  constexpr int kDim = 1 << 16;
  constexpr uint32_t kRequests = 40;
  LoopbackPs ps({.table_dim = kDim});
  PlainClient client(ps);
  auto context = Context();
  auto stream = client.stub->PullRows(context.get());
  PullRowsChunk request;
  *request.mutable_sender() = ps.SenderOf(0);
  request.mutable_want()->set_latest(true);
  request.mutable_want()->set_timeout_ms(kWaitMaxMs);
  IdList& list = *request.add_list();
  const std::vector<uint64_t> ids = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  list.set_count(static_cast<uint32_t>(ids.size()));
  list.set_deltas(EncodeIds(ids));
  for (uint32_t i = 0; i < kRequests; ++i) {
    request.set_request(i);
    ASSERT_TRUE(stream->Write(request));
  }
  // Some answers are on their way or lie in buffers of the sockets; most are
  // not gathered.
  EXPECT_TRUE(WaitUntil(
      [&] { return ps.store->GetStatus().waits_parked() >= kRequests / 2; }));
  std::set<uint32_t> answered;
  RowChunk answer;
  while (answered.size() < kRequests && stream->Read(&answer)) {
    EXPECT_FALSE(answer.not_yet());
    EXPECT_EQ(answer.payload().size(), ids.size() * kDim * sizeof(float));
    answered.insert(answer.request());
  }
  EXPECT_EQ(answered.size(), kRequests);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

}  // namespace
}  // namespace weir
