#include "client/cc/grpc_transport.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/support/sync_stream.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "client/cc/loans.h"
#include "common/check.h"
#include "common/mutex.h"
#include "common/status.h"
#include "proto/chunk_codec.h"
#include "proto/grpc_channel.h"
#include "proto/grpc_status.h"
#include "proto/ps.grpc.pb.h"

namespace weir {
namespace {

using grpc::ByteBuffer;
using grpc::internal::RpcMethod;

grpc::ChannelArguments ChannelArgumentsFor(
    const GrpcTransportOptions& options) {
  grpc::ChannelArguments arguments = CommonChannelArguments();
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  // The caller retries: it alone knows the identity to repeat.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  if (options.own_connections) {
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  }
  return arguments;
}

// What every call to one ps shares.
struct Peer {
  std::string address;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<ParameterServer::Stub> stub;

  // `status` with the address, and without gRPC's layers around the usual
  // reason for it.
  absl::Status Named(const grpc::Status& status) const {
    absl::Status result = FromGrpcStatus(status);
    if (absl::IsUnavailable(result) &&
        absl::StrContains(result.message(), "Connection refused")) {
      result = absl::UnavailableError("connection refused");
    }
    return Annotate(result, absl::StrCat("ps ", address));
  }
};

void SetTimeout(grpc::ClientContext* context, ShardLink::Timeout timeout) {
  context->set_deadline(std::chrono::system_clock::now() + timeout);
}

// ----------------------------------------------------------- PushPull, Lookup

// A stream of messages both ways. One thread may Write while another Reads.
class GrpcStream {
 public:
  GrpcStream(std::shared_ptr<const Peer> peer, const RpcMethod& method)
      : peer_(std::move(peer)) {
    Reconnect(peer_->channel.get());
    // The call starts with the first message, so that opening never blocks.
    context_.set_initial_metadata_corked(true);
    stream_.reset(grpc::internal::ClientReaderWriterFactory<
                  ByteBuffer, ByteBuffer>::Create(peer_->channel.get(), method,
                                                  &context_));
  }

  ~GrpcStream() {
    context_.TryCancel();
    End().IgnoreError();
  }

  absl::Status Write(const ByteBuffer& buffer) {
    return stream_->Write(buffer) ? absl::OkStatus() : End();
  }

  template <typename Chunk>
  absl::Status Read(Chunk* header, Payload* payload) {
    if (!StartReceive()) {
      return End();
    }
    ByteBuffer buffer;
    const bool received = stream_->Read(&buffer);
    EndReceive();
    if (!received) {
      return End();
    }
    return Annotate(DecodeChunk(buffer, header, payload),
                    absl::StrCat("ps ", peer_->address));
  }

  void Cancel() { context_.TryCancel(); }

 private:
  // False when the stream has ended. While a Read is under way nobody else
  // may read: gRPC aborts the process on two reads at once.
  bool StartReceive() {
    MutexLock lock(&mutex_);
    if (ending_) {
      return false;
    }
    WEIR_CHECK(!receiving_);
    receiving_ = true;
    return true;
  }

  void EndReceive() {
    MutexLock lock(&mutex_);
    receiving_ = false;
    changed_.NotifyAll();
  }

  // The status of the stream, which has broken or was cancelled. The first
  // caller reads what is left, which nobody asks for any more, and gets it.
  absl::Status End() {
    {
      MutexLock lock(&mutex_);
      while (receiving_ || (ending_ && !status_.has_value())) {
        changed_.Wait(&mutex_);
      }
      if (status_.has_value()) {
        return *status_;
      }
      ending_ = true;
    }
    ByteBuffer dropped;
    while (stream_->Read(&dropped)) {
    }
    const absl::Status status = peer_->Named(stream_->Finish());
    MutexLock lock(&mutex_);
    // The server ends a stream only when its client closes it, and we never
    // close: OK would leave the caller without a reason.
    status_ = status.ok() ? absl::UnavailableError(absl::StrCat(
                                "ps ", peer_->address, ": stream ended"))
                          : status;
    changed_.NotifyAll();
    return *status_;
  }

  const std::shared_ptr<const Peer> peer_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<ByteBuffer, ByteBuffer>> stream_;

  Mutex mutex_;
  CondVar changed_;
  bool receiving_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);
};

class GrpcPushPullStream : public PushPullStream {
 public:
  explicit GrpcPushPullStream(std::shared_ptr<const Peer> peer)
      : stream_(std::move(peer), Method()) {}

  absl::Status Send(const GradientChunk& header, std::span<const char> payload,
                    std::function<void()> released) override {
    return stream_.Write(EncodeChunk(header, payload, std::move(released)));
  }
  absl::Status Receive(ValueChunk* header, Payload* payload) override {
    return stream_.Read(header, payload);
  }
  void Cancel() override { stream_.Cancel(); }

 private:
  static const RpcMethod& Method() {
    static const RpcMethod method("/weir.ParameterServer/PushPull",
                                  RpcMethod::BIDI_STREAMING);
    return method;
  }
  GrpcStream stream_;
};

class GrpcLookupStream : public LookupStream {
 public:
  explicit GrpcLookupStream(std::shared_ptr<const Peer> peer)
      : stream_(std::move(peer), Method()) {}

  absl::Status Send(const LookupChunk& request) override {
    return stream_.Write(EncodeMessage(request));
  }
  absl::Status Receive(RowChunk* header, Payload* payload) override {
    return stream_.Read(header, payload);
  }
  void Cancel() override { stream_.Cancel(); }

 private:
  static const RpcMethod& Method() {
    static const RpcMethod method("/weir.ParameterServer/Lookup",
                                  RpcMethod::BIDI_STREAMING);
    return method;
  }
  GrpcStream stream_;
};

// ------------------------------------------------------ Push, Assign, Update

// Sends what `next` gives and waits for the one answer.
template <typename Reply, typename Chunk>
absl::StatusOr<Reply> SendAll(
    const Peer& peer, const RpcMethod& method, ShardLink::Timeout timeout,
    const std::function<bool(Chunk*, std::span<const char>*)>& next) {
  Reconnect(peer.channel.get());
  Loans loans;
  grpc::Status status;
  ByteBuffer answer;
  {
    grpc::ClientContext context;
    SetTimeout(&context, timeout);
    const std::unique_ptr<grpc::ClientWriter<ByteBuffer>> stream(
        grpc::internal::ClientWriterFactory<ByteBuffer>::Create(
            peer.channel.get(), method, &context, &answer));
    Chunk header;
    std::span<const char> payload;
    while (next(&header, &payload)) {
      if (!stream->Write(EncodeChunk(header, payload, loans.Add()))) {
        break;
      }
      payload = {};
    }
    stream->WritesDone();
    status = stream->Finish();
  }
  while (!loans.WaitForNone(std::chrono::seconds(1))) {
  }
  if (!status.ok()) {
    return peer.Named(status);
  }
  Reply reply;
  WEIR_RETURN_IF_ERROR(Annotate(DecodeMessage(answer, &reply),
                                absl::StrCat("ps ", peer.address)));
  return reply;
}

// --------------------------------------------------------------------- link

class GrpcShardLink : public ShardLink {
 public:
  explicit GrpcShardLink(std::shared_ptr<const Peer> peer)
      : peer_(std::move(peer)) {}

  const std::string& address() const override { return peer_->address; }

  std::unique_ptr<PushPullStream> OpenPushPull() override {
    return std::make_unique<GrpcPushPullStream>(peer_);
  }

  absl::Status Pull(
      const PullRequest& request, Timeout timeout,
      const std::function<absl::Status(const ValueChunk&, const Payload&)>&
          chunk) override {
    static const RpcMethod method("/weir.ParameterServer/Pull",
                                  RpcMethod::SERVER_STREAMING);
    Reconnect(peer_->channel.get());
    grpc::ClientContext context;
    SetTimeout(&context, timeout);
    const ByteBuffer encoded = EncodeMessage(request);
    const std::unique_ptr<grpc::ClientReader<ByteBuffer>> stream(
        grpc::internal::ClientReaderFactory<ByteBuffer>::Create(
            peer_->channel.get(), method, &context, encoded));
    absl::Status own;
    ByteBuffer buffer;
    ValueChunk header;
    Payload payload;
    while (stream->Read(&buffer)) {
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
    const absl::Status status = peer_->Named(stream->Finish());
    return own.ok() ? status : own;
  }

  absl::StatusOr<PushReply> Push(
      Timeout timeout,
      const std::function<bool(GradientChunk*, std::span<const char>*)>& next)
      override {
    static const RpcMethod method("/weir.ParameterServer/Push",
                                  RpcMethod::CLIENT_STREAMING);
    return SendAll<PushReply>(*peer_, method, timeout, next);
  }

  std::unique_ptr<LookupStream> OpenLookup() override {
    return std::make_unique<GrpcLookupStream>(peer_);
  }

  absl::StatusOr<UpdateReply> Update(
      Timeout timeout,
      const std::function<bool(UpdateChunk*, std::span<const char>*)>& next)
      override {
    static const RpcMethod method("/weir.ParameterServer/Update",
                                  RpcMethod::CLIENT_STREAMING);
    return SendAll<UpdateReply>(*peer_, method, timeout, next);
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
    return Unary<HelloReply>(&ParameterServer::Stub::Hello, HelloRequest(),
                             timeout);
  }

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

  const std::shared_ptr<const Peer> peer_;
};

class GrpcTransport : public Transport {
 public:
  explicit GrpcTransport(GrpcTransportOptions options) : options_(options) {}

  std::unique_ptr<ShardLink> Connect(const std::string& address) override {
    auto peer = std::make_shared<Peer>();
    peer->address = address;
    peer->channel =
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                  ChannelArgumentsFor(options_));
    peer->stub = ParameterServer::NewStub(peer->channel);
    return std::make_unique<GrpcShardLink>(std::move(peer));
  }

 private:
  const GrpcTransportOptions options_;
};

}  // namespace

std::unique_ptr<Transport> MakeGrpcTransport(GrpcTransportOptions options) {
  return std::make_unique<GrpcTransport>(options);
}

}  // namespace weir
