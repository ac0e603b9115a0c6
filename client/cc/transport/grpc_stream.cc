#include "client/cc/transport/grpc_stream.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/support/sync_stream.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cc/transport/tcp_traffic.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/io/crc32c.h"
#include "proto/wire/chunk_codec.h"
#include "proto/wire/grpc_channel.h"

namespace weir {
namespace {

using grpc::ByteBuffer;
using grpc::internal::RpcMethod;

// A stream of messages both ways. One thread may Write while another Reads. The
// stream must be read to its end and finished exactly once, whoever sees first
// that it has broken: End does that, for either thread.
class GrpcStream {
 public:
  GrpcStream(std::shared_ptr<const GrpcPeer> peer, const RpcMethod& method)
      : peer_(std::move(peer)) {
    Reconnect(peer_->channel.get());
    // The call starts with the first message, so that opening never blocks.
    context_.set_initial_metadata_corked(true);
    stream_.reset(grpc::internal::ClientReaderWriterFactory<
                  ByteBuffer, ByteBuffer>::Create(peer_->channel.get(), method,
                                                  &context_));
  }

  ~GrpcStream() {
    // Payloads may still lie in the connection when the stream is gone, and the
    // link's Sever must then know where it goes.
    peer_->NoteRemote(context_.peer());
    context_.TryCancel();
    End().IgnoreError();  // gRPC requires Finish before the context goes
  }

  absl::Status Write(const ByteBuffer& buffer) {
    if (stream_->Write(buffer)) {
      return absl::OkStatus();
    }
    return End();
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

  const GrpcPeer& peer() const { return *peer_; }

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
      // The thread that reads leaves first: the status comes after its message.
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
    status_ = status;
    if (status.ok()) {
      status_ = absl::UnavailableError(
          absl::StrCat("ps ", peer_->address, ": stream ended"));
    }
    changed_.NotifyAll();
    return *status_;
  }

  const std::shared_ptr<const GrpcPeer> peer_;
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
  explicit GrpcPushPullStream(std::shared_ptr<const GrpcPeer> peer)
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
  explicit GrpcPullRowsStream(std::shared_ptr<const GrpcPeer> peer)
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

}  // namespace

std::unique_ptr<PushPullStream> MakeGrpcPushPull(
    std::shared_ptr<const GrpcPeer> peer) {
  return std::make_unique<GrpcPushPullStream>(std::move(peer));
}

std::unique_ptr<PullRowsStream> MakeGrpcPullRows(
    std::shared_ptr<const GrpcPeer> peer) {
  return std::make_unique<GrpcPullRowsStream>(std::move(peer));
}

}  // namespace weir
