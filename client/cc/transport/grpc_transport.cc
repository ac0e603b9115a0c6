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

// Sends what `next` gives and waits for the one answer. Returns when gRPC reads
// none of the payloads any more.
template <typename Reply, typename Chunk>
absl::StatusOr<Reply> SendAll(const GrpcPeer& peer, const char* method,
                              LinkTimeout timeout,
                              const ChunkSource<Chunk>& next) {
  Reconnect(peer.channel.get());
  Loans loans;
  absl::Status status;
  ByteBuffer answer;
  {
    grpc::ClientContext context;
    const CallWatch::Watched watched(peer.calls.get(), &context, timeout);
    const std::unique_ptr<grpc::ClientWriter<ByteBuffer>> stream(
        grpc::internal::ClientWriterFactory<ByteBuffer>::Create(
            peer.channel.get(), RpcMethod(method, RpcMethod::CLIENT_STREAMING),
            &context, &answer));
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

template <typename Reply, typename Request>
absl::StatusOr<Reply> Unary(const GrpcPeer& peer,
                            grpc::Status (ParameterServer::Stub::*method)(
                                grpc::ClientContext*, const Request&, Reply*),
                            const Request& request, LinkTimeout timeout) {
  Reconnect(peer.channel.get());
  grpc::ClientContext context;
  context.set_deadline(DeadlineAfter(timeout));
  Reply reply;
  const grpc::Status status =
      (peer.stub.get()->*method)(&context, request, &reply);
  WEIR_RETURN_IF_ERROR(peer.Named(status));
  return reply;
}

absl::StatusOr<HelloReply> SayHello(const GrpcPeer& peer, bool chief,
                                    LinkTimeout timeout) {
  HelloRequest request;
  request.set_chief(chief);
  request.set_wire_version(kWireVersion);
  WEIR_ASSIGN_OR_RETURN(
      HelloReply reply,
      Unary(peer, &ParameterServer::Stub::Hello, request, timeout));
  // The chief and programs of the SDK begin with Hello, and workers with the
  // chief's Register, so another version is found before a message of it could
  // be misread.
  WEIR_RETURN_IF_ERROR(CheckWireVersion(absl::StrCat("ps ", peer.address),
                                        reply.wire_version()));
  return reply;
}

class GrpcDataLink : public DataLink {
 public:
  explicit GrpcDataLink(std::shared_ptr<const GrpcPeer> peer)
      : peer_(std::move(peer)) {}

  std::unique_ptr<PushPullStream> OpenPushPull() override {
    return MakeGrpcPushPull(peer_);
  }
  std::unique_ptr<PullRowsStream> OpenPullRows() override {
    return MakeGrpcPullRows(peer_);
  }
  absl::StatusOr<PushRowsReply> PushRows(
      Timeout timeout, const ChunkSource<PushRowsChunk>& next) override {
    return SendAll<PushRowsReply>(*peer_, "/weir.ParameterServer/PushRows",
                                  timeout, next);
  }
  absl::StatusOr<HelloReply> Hello(Timeout timeout) override {
    return SayHello(*peer_, /*chief=*/false, timeout);
  }
  void Sever() override { peer_->Sever(); }

 private:
  const std::shared_ptr<const GrpcPeer> peer_;
};

class GrpcControlLink : public ControlLink {
 public:
  explicit GrpcControlLink(std::shared_ptr<const GrpcPeer> peer)
      : peer_(std::move(peer)) {}

  const std::string& address() const override { return peer_->address; }

  absl::StatusOr<HelloReply> Hello(Timeout timeout) override {
    return SayHello(*peer_, chief_, timeout);
  }
  void SpeakAsChief() override { chief_ = true; }

  absl::StatusOr<DeclareReply> Declare(const DeclareRequest& request,
                                       Timeout timeout) override {
    return Unary(*peer_, &Stub::Declare, request, timeout);
  }
  absl::StatusOr<DeclareReply> Restore(const RestoreRequest& request,
                                       Timeout timeout) override {
    return Unary(*peer_, &Stub::Restore, request, timeout);
  }
  absl::StatusOr<AssignReply> Assign(
      Timeout timeout, const ChunkSource<AssignChunk>& next) override {
    return SendAll<AssignReply>(*peer_, "/weir.ParameterServer/Assign", timeout,
                                next);
  }
  absl::Status SetSlots(const SetSlotsRequest& request,
                        Timeout timeout) override {
    return Unary(*peer_, &Stub::SetSlots, request, timeout).status();
  }
  absl::Status Snapshot(
      const SnapshotRequest& request, Timeout timeout,
      const std::function<void(const SnapshotReply&)>& reply) override {
    Reconnect(peer_->channel.get());
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(timeout));
    const auto stream = peer_->stub->Snapshot(&context, request);
    SnapshotReply message;
    while (stream->Read(&message)) {
      reply(message);
    }
    return peer_->Named(stream->Finish());
  }
  absl::StatusOr<PsStatus> GetStatus(const GetStatusRequest& request,
                                     Timeout timeout) override {
    return Unary(*peer_, &Stub::GetStatus, request, timeout);
  }
  absl::StatusOr<ShrinkReply> Shrink(const ShrinkRequest& request,
                                     Timeout timeout) override {
    return Unary(*peer_, &Stub::Shrink, request, timeout);
  }
  absl::Status Shutdown(const ShutdownRequest& request,
                        Timeout timeout) override {
    return Unary(*peer_, &Stub::Shutdown, request, timeout).status();
  }

 private:
  using Stub = ParameterServer::Stub;

  const std::shared_ptr<const GrpcPeer> peer_;
  bool chief_ = false;
};

class GrpcTransport : public Transport {
 public:
  explicit GrpcTransport(GrpcTransportOptions options)
      : options_(std::move(options)),
        security_(Security::OrInsecure(options_.security)) {}

  std::unique_ptr<ControlLink> Connect(const std::string& address) override {
    return std::make_unique<GrpcControlLink>(MakePeer(address));
  }
  std::unique_ptr<DataLink> ConnectData(const std::string& address) override {
    return std::make_unique<GrpcDataLink>(MakePeer(address));
  }

 private:
  std::shared_ptr<const GrpcPeer> MakePeer(const std::string& address) {
    auto peer = std::make_shared<GrpcPeer>();
    peer->address = address;
    peer->calls = calls_;
    // Within one host bytes only move through its memory, and a CRC32C would
    // cost a pass over every payload.
    peer->checksum =
        options_.checksum == ChecksumChoice::kOn ||
        (options_.checksum == ChecksumChoice::kAuto && !IsThisHost(address));
    peer->security = security_;
    peer->channel = grpc::CreateCustomChannel(address, security_->ToPs(),
                                              ChannelArgumentsFor(options_));
    peer->stub = ParameterServer::NewStub(peer->channel);
    return peer;
  }

  const GrpcTransportOptions options_;
  const std::shared_ptr<const Security> security_;
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
  return std::make_unique<GrpcTransport>(std::move(options));
}

}  // namespace weir
