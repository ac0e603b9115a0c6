#include "client/cc/transport/grpc_transport.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/support/sync_stream.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "client/cc/transport/call_watch.h"
#include "client/cc/transport/loans.h"
#include "client/cc/transport/tcp_traffic.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/io/crc32c.h"
#include "proto/ps.grpc.pb.h"
#include "proto/wire/chunk_codec.h"
#include "proto/wire/grpc_channel.h"
#include "proto/wire/grpc_deadline.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/wire_version.h"

namespace weir {
namespace {

using grpc::ByteBuffer;
using grpc::internal::RpcMethod;

// A call that has ended gives its payloads back at once, unless the peer takes
// nothing more.
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
  if (options.own_connections) {
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  }
  return arguments;
}

// What every call to one ps shares.
class Peer {
 public:
  std::string address;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<ParameterServer::Stub> stub;
  std::shared_ptr<CallWatch> calls;
  bool checksum = false;  // of payloads

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

  // How a call ended that was watched.
  absl::Status Named(const grpc::Status& status,
                     const CallWatch::Watched& watched) const {
    return watched.lost() ? absl::DeadlineExceededError(absl::StrCat(
                                "ps ", address, ": nothing heard in time"))
                          : Named(status);
  }

  // Remembers where the connection goes, for Sever.
  void NoteRemote(const std::string& remote) const {
    MutexLock lock(&mutex_);
    remote_ = remote;
  }

  void Sever() const {
    std::string remote;
    {
      MutexLock lock(&mutex_);
      remote = remote_;
    }
    SeverTcp(remote);
  }

 private:
  mutable Mutex mutex_;
  mutable std::string remote_ ABSL_GUARDED_BY(mutex_);
};

void SetTimeout(grpc::ClientContext* context, ShardLink::Timeout timeout) {
  context->set_deadline(DeadlineAfter(timeout));
}

// ----------------------------------------------------------- PushPull,
// PullRows

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
    peer_->NoteRemote(context_.peer());
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

  const Peer& peer() const { return *peer_; }

  void Cancel() { context_.TryCancel(); }

  int64_t BytesMoved() { return TcpBytesMoved(context_.peer()); }

  void Sever() {
    context_.TryCancel();
    SeverTcp(context_.peer());
  }

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
    if (!stream_.peer().checksum) {
      return stream_.Write(EncodeChunk(header, payload, std::move(released)));
    }
    GradientChunk checked = header;
    if (!payload.empty()) {
      checked.set_crc32c(Crc32c(payload.data(), payload.size()));
    }
    if (checked.has_want()) {
      checked.mutable_want()->set_checksum(true);
    }
    return stream_.Write(EncodeChunk(checked, payload, std::move(released)));
  }
  absl::Status Receive(ValueChunk* header, Payload* payload) override {
    return stream_.Read(header, payload);
  }
  void Cancel() override { stream_.Cancel(); }
  int64_t BytesMoved() override { return stream_.BytesMoved(); }
  void Sever() override { stream_.Sever(); }

 private:
  static const RpcMethod& Method() {
    static const RpcMethod method("/weir.ParameterServer/PushPull",
                                  RpcMethod::BIDI_STREAMING);
    return method;
  }
  GrpcStream stream_;
};

class GrpcPullRowsStream : public PullRowsStream {
 public:
  explicit GrpcPullRowsStream(std::shared_ptr<const Peer> peer)
      : stream_(std::move(peer), Method()) {}

  absl::Status Send(const PullRowsChunk& request) override {
    if (!stream_.peer().checksum) {
      return stream_.Write(EncodeMessage(request));
    }
    PullRowsChunk checked = request;
    checked.mutable_want()->set_checksum(true);
    return stream_.Write(EncodeMessage(checked));
  }
  absl::Status Receive(RowChunk* header, Payload* payload) override {
    return stream_.Read(header, payload);
  }
  void Cancel() override { stream_.Cancel(); }
  int64_t BytesMoved() override { return stream_.BytesMoved(); }
  void Sever() override { stream_.Sever(); }

 private:
  static const RpcMethod& Method() {
    static const RpcMethod method("/weir.ParameterServer/PullRows",
                                  RpcMethod::BIDI_STREAMING);
    return method;
  }
  GrpcStream stream_;
};

// ------------------------------------------------------ Push, Assign, PushRows

// Sends what `next` gives and waits for the one answer.
template <typename Reply, typename Chunk>
absl::StatusOr<Reply> SendAll(
    const Peer& peer, const RpcMethod& method, ShardLink::Timeout timeout,
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
    while (next(&header, &payload)) {
      if (peer.checksum && !payload.empty()) {
        header.set_crc32c(Crc32c(payload.data(), payload.size()));
      } else {
        header.clear_crc32c();
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
  while (!loans.WaitForNone(kReleaseWait)) {
    if (!status.ok()) {
      peer.Sever();
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
  explicit GrpcShardLink(std::shared_ptr<const Peer> peer)
      : peer_(std::move(peer)) {}

  const std::string& address() const override { return peer_->address; }
  void Sever() override { peer_->Sever(); }

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
    CallWatch::Watched watched(peer_->calls.get(), &context, timeout);
    PullRequest checked = request;
    checked.mutable_want()->set_checksum(peer_->checksum);
    const ByteBuffer encoded = EncodeMessage(checked);
    const std::unique_ptr<grpc::ClientReader<ByteBuffer>> stream(
        grpc::internal::ClientReaderFactory<ByteBuffer>::Create(
            peer_->channel.get(), method, &context, encoded));
    absl::Status own;
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

  std::unique_ptr<PullRowsStream> OpenPullRows() override {
    return std::make_unique<GrpcPullRowsStream>(peer_);
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

  const std::shared_ptr<const Peer> peer_;
  bool chief_ = false;
};

class GrpcTransport : public Transport {
 public:
  explicit GrpcTransport(GrpcTransportOptions options) : options_(options) {}

  std::unique_ptr<ShardLink> Connect(const std::string& address) override {
    auto peer = std::make_shared<Peer>();
    peer->address = address;
    peer->calls = calls_;
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
