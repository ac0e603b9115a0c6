#include "client/cc/transport/grpc_transport.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/support/sync_stream.h>

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cc/transport/call_watch.h"
#include "client/cc/transport/grpc_peer.h"
#include "client/cc/transport/grpc_stream.h"
#include "client/cc/transport/loans.h"
#include "client/cc/transport/tcp_traffic.h"
#include "common/base/status.h"
#include "common/io/crc32c.h"
#include "proto/ps.grpc.pb.h"
#include "proto/wire/chunk_codec.h"
#include "proto/wire/grpc_channel.h"
#include "proto/wire/grpc_deadline.h"
#include "proto/wire/wire_version.h"

namespace weir {
namespace {

using grpc::ByteBuffer;
using grpc::internal::RpcMethod;

// A call that has ended gives its payloads back at once, unless the peer takes
// nothing more. If the call failed, its connection is ended after this time.
constexpr std::chrono::seconds kReleaseWait{1};

grpc::ChannelArguments ChannelArgumentsFor(
    const GrpcTransportOptions& options) {
  grpc::ChannelArguments arguments = CommonChannelArguments();
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  // A ping waits behind the payloads that the connection has taken: those of
  // both directions take 32 s at 1 Mbit/s.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 60000);
  // The caller retries: it alone knows the identity to repeat.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Otherwise gRPC gives all channels to one address the same connection.
  if (options.own_connections) {
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  }
  return arguments;
}

void SetTimeout(grpc::ClientContext* context, ShardLink::Timeout timeout) {
  context->set_deadline(DeadlineAfter(timeout));
}

// ------------------------------------------------------ Push, Assign, PushRows

// Sends what `next` gives and waits for the one answer. Returns when gRPC reads
// none of the payloads any more.
template <typename Reply, typename Chunk>
absl::StatusOr<Reply> SendAll(
    const GrpcPeer& peer, const RpcMethod& method, ShardLink::Timeout timeout,
    const std::function<bool(Chunk*, std::span<const char>*)>& next) {
  Reconnect(peer.channel.get());
  Loans loans;
  absl::Status status;
  ByteBuffer answer;
  {
    grpc::ClientContext context;
    const CallWatch::Watched watched(peer.calls.get(), &context, timeout);
    const std::unique_ptr<grpc::ClientWriter<ByteBuffer>> stream(
        grpc::internal::ClientWriterFactory<ByteBuffer>::Create(
            peer.channel.get(), method, &context, &answer));
    Chunk header;
    std::span<const char> payload;
    // A Write that fails means that the call has ended; Finish says why.
    while (next(&header, &payload)) {
      if (peer.checksum && !payload.empty()) {
        header.set_crc32c(Crc32c(payload.data(), payload.size()));
      } else {
        header.clear_crc32c();  // `header` may be the one of the last chunk
      }
      if (!stream->Write(EncodeChunk(header, payload, loans.Add()))) {
        break;
      }
      payload = {};
    }
    stream->WritesDone();
    status = peer.Named(stream->Finish(), watched);
    peer.NoteRemote(context.peer());
  }
  // The context is gone by now, and with it gRPC's own hold on the payloads,
  // but what lies in the connection is still read from the caller's memory.
  while (!loans.WaitForNone(kReleaseWait)) {
    if (!status.ok()) {
      peer.Sever();  // a peer that hangs would never take it
    }
  }
  WEIR_RETURN_IF_ERROR(status);
  Reply reply;
  WEIR_RETURN_IF_ERROR(Annotate(DecodeMessage(answer, &reply),
                                absl::StrCat("ps ", peer.address)));
  return reply;
}

// --------------------------------------------------------------------- link

class GrpcShardLink : public ShardLink {
 public:
  explicit GrpcShardLink(std::shared_ptr<const GrpcPeer> peer)
      : peer_(std::move(peer)) {}

  const std::string& address() const override { return peer_->address; }
  void Sever() override { peer_->Sever(); }

  std::unique_ptr<PushPullStream> OpenPushPull() override {
    return MakeGrpcPushPull(peer_);
  }

  absl::Status Pull(
      const PullRequest& request, Timeout timeout,
      const std::function<absl::Status(const ValueChunk&, const Payload&)>&
          chunk) override {
    static const RpcMethod method("/weir.ParameterServer/Pull",
                                  RpcMethod::SERVER_STREAMING);
    Reconnect(peer_->channel.get());
    grpc::ClientContext context;
    CallWatch::Watched watched(peer_->calls.get(), &context, timeout);
    PullRequest checked = request;
    checked.mutable_want()->set_checksum(peer_->checksum);
    const ByteBuffer encoded = EncodeMessage(checked);
    const std::unique_ptr<grpc::ClientReader<ByteBuffer>> stream(
        grpc::internal::ClientReaderFactory<ByteBuffer>::Create(
            peer_->channel.get(), method, &context, encoded));
    absl::Status own;  // ours: a damaged chunk, or what `chunk` says
    ByteBuffer buffer;
    ValueChunk header;
    Payload payload;
    while (stream->Read(&buffer)) {
      watched.Heard();
      if (!own.ok()) {
        continue;  // cancelled: empties the stream
      }
      own = Annotate(DecodeChunk(buffer, &header, &payload),
                     absl::StrCat("ps ", address()));
      if (own.ok()) {
        own = chunk(header, payload);
      }
      if (!own.ok()) {
        context.TryCancel();
      }
    }
    const absl::Status status = peer_->Named(stream->Finish(), watched);
    // The stream's status would only say that we cancelled it.
    WEIR_RETURN_IF_ERROR(own);
    return status;
  }

  absl::StatusOr<PushReply> Push(
      Timeout timeout,
      const std::function<bool(GradientChunk*, std::span<const char>*)>& next)
      override {
    static const RpcMethod method("/weir.ParameterServer/Push",
                                  RpcMethod::CLIENT_STREAMING);
    return SendAll<PushReply>(*peer_, method, timeout, next);
  }

  std::unique_ptr<PullRowsStream> OpenPullRows() override {
    return MakeGrpcPullRows(peer_);
  }

  absl::StatusOr<PushRowsReply> PushRows(
      Timeout timeout,
      const std::function<bool(PushRowsChunk*, std::span<const char>*)>& next)
      override {
    static const RpcMethod method("/weir.ParameterServer/PushRows",
                                  RpcMethod::CLIENT_STREAMING);
    return SendAll<PushRowsReply>(*peer_, method, timeout, next);
  }

  absl::StatusOr<ShrinkReply> Shrink(const ShrinkRequest& request,
                                     Timeout timeout) override {
    return Unary<ShrinkReply>(&ParameterServer::Stub::Shrink, request, timeout);
  }

  absl::StatusOr<AssignReply> Assign(
      Timeout timeout,
      const std::function<bool(AssignChunk*, std::span<const char>*)>& next)
      override {
    static const RpcMethod method("/weir.ParameterServer/Assign",
                                  RpcMethod::CLIENT_STREAMING);
    return SendAll<AssignReply>(*peer_, method, timeout, next);
  }

  absl::StatusOr<HelloReply> Hello(Timeout timeout) override {
    HelloRequest request;
    request.set_chief(chief_);
    request.set_wire_version(kWireVersion);
    absl::StatusOr<HelloReply> reply =
        Unary<HelloReply>(&ParameterServer::Stub::Hello, request, timeout);
    // The chief and programs of the SDK begin with Hello, and workers with the
    // chief's Register, so another version is found before a message of it
    // could be misread.
    if (reply.ok()) {
      WEIR_RETURN_IF_ERROR(CheckWireVersion(absl::StrCat("ps ", peer_->address),
                                            reply->wire_version()));
    }
    return reply;
  }

  void SpeakAsChief() override { chief_ = true; }

  absl::StatusOr<DeclareReply> Declare(const DeclareRequest& request,
                                       Timeout timeout) override {
    return Unary<DeclareReply>(&ParameterServer::Stub::Declare, request,
                               timeout);
  }

  absl::StatusOr<DeclareReply> Restore(const RestoreRequest& request,
                                       Timeout timeout) override {
    return Unary<DeclareReply>(&ParameterServer::Stub::Restore, request,
                               timeout);
  }

  absl::Status SetSlots(const SetSlotsRequest& request,
                        Timeout timeout) override {
    return Unary<SetSlotsReply>(&ParameterServer::Stub::SetSlots, request,
                                timeout)
        .status();
  }

  absl::Status Snapshot(
      const SnapshotRequest& request, Timeout timeout,
      const std::function<void(const SnapshotReply&)>& reply) override {
    Reconnect(peer_->channel.get());
    grpc::ClientContext context;
    SetTimeout(&context, timeout);
    const auto stream = peer_->stub->Snapshot(&context, request);
    SnapshotReply message;
    while (stream->Read(&message)) {
      reply(message);
    }
    return peer_->Named(stream->Finish());
  }

  absl::StatusOr<PsStatus> GetStatus(Timeout timeout, int hot_ids) override {
    GetStatusRequest request;
    request.set_hot_ids(static_cast<uint32_t>(hot_ids));
    return Unary<PsStatus>(&ParameterServer::Stub::GetStatus, request, timeout);
  }

  absl::Status Shutdown(const ShutdownRequest& request,
                        Timeout timeout) override {
    return Unary<ShutdownReply>(&ParameterServer::Stub::Shutdown, request,
                                timeout)
        .status();
  }

 private:
  template <typename Reply, typename Request>
  absl::StatusOr<Reply> Unary(grpc::Status (ParameterServer::Stub::*method)(
                                  grpc::ClientContext*, const Request&, Reply*),
                              const Request& request, Timeout timeout) {
    Reconnect(peer_->channel.get());
    grpc::ClientContext context;
    SetTimeout(&context, timeout);
    Reply reply;
    const grpc::Status status =
        (peer_->stub.get()->*method)(&context, request, &reply);
    if (!status.ok()) {
      return peer_->Named(status);
    }
    return reply;
  }

  const std::shared_ptr<const GrpcPeer> peer_;
  bool chief_ = false;
};

class GrpcTransport : public Transport {
 public:
  explicit GrpcTransport(GrpcTransportOptions options) : options_(options) {}

  std::unique_ptr<ShardLink> Connect(const std::string& address) override {
    auto peer = std::make_shared<GrpcPeer>();
    peer->address = address;
    peer->calls = calls_;
    // Within one host bytes only move through its memory, and a CRC32C would
    // cost a pass over every payload.
    peer->checksum =
        options_.checksum == ChecksumChoice::kOn ||
        (options_.checksum == ChecksumChoice::kAuto && !IsThisHost(address));
    peer->channel =
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                  ChannelArgumentsFor(options_));
    peer->stub = ParameterServer::NewStub(peer->channel);
    return std::make_unique<GrpcShardLink>(std::move(peer));
  }

 private:
  const GrpcTransportOptions options_;
  const std::shared_ptr<CallWatch> calls_ = std::make_shared<CallWatch>();
};

}  // namespace

absl::StatusOr<ChecksumChoice> ParseChecksumChoice(const std::string& text) {
  if (text == "auto") {
    return ChecksumChoice::kAuto;
  }
  if (text == "on") {
    return ChecksumChoice::kOn;
  }
  if (text == "off") {
    return ChecksumChoice::kOff;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("checksum '", text, "' is not auto, on or off"));
}

std::unique_ptr<Transport> MakeGrpcTransport(GrpcTransportOptions options) {
  return std::make_unique<GrpcTransport>(options);
}

}  // namespace weir
