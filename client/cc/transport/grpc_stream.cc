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

// What a request says when payloads in both directions carry a checksum.
void AddChecksums(std::span<const char> payload, GradientChunk* header) {
  if (!payload.empty()) {
    header->set_crc32c(Crc32c(payload.data(), payload.size()));
  }
  if (header->has_want()) {
    header->mutable_want()->set_checksum(true);
  }
}

void AddChecksums(std::span<const char> /*payload*/, PullRowsChunk* header) {
  header->mutable_want()->set_checksum(true);
}

// One thread may Send while another Receives. The call must be read to its end
// and finished exactly once, whoever sees first that it has broken: End does
// that, for either thread.
template <typename Request, typename Answer>
class GrpcStream : public DataStream<Request, Answer> {
 public:
  GrpcStream(std::shared_ptr<const GrpcPeer> peer, const char* method)
      : peer_(std::move(peer)) {
    Reconnect(peer_->channel.get());
    // The call starts with the first message, so that opening never blocks.
    context_.set_initial_metadata_corked(true);
    stream_.reset(
        grpc::internal::ClientReaderWriterFactory<ByteBuffer, ByteBuffer>::
            Create(peer_->channel.get(),
                   RpcMethod(method, RpcMethod::BIDI_STREAMING), &context_));
  }

  ~GrpcStream() override {
    // Payloads may still lie in the connection when the stream is gone, and the
    // link's Sever must then know where it goes.
    peer_->NoteRemote(context_.peer());
    context_.TryCancel();
    End().IgnoreError();  // gRPC requires Finish before the context goes
  }

  absl::Status Send(const Request& header, std::span<const char> payload,
                    std::function<void()> released) override {
    if (!peer_->checksum) {
      return Write(EncodeChunk(header, payload, std::move(released)));
    }
    Request checked = header;
    AddChecksums(payload, &checked);
    return Write(EncodeChunk(checked, payload, std::move(released)));
  }

  absl::Status Receive(Answer* header, Payload* payload) override {
    if (!StartReceive()) {
      return End();
    }
    ByteBuffer buffer;
    const bool received = stream_->Read(&buffer);
    EndReceive();
    if (!received) {
      return End();
    }
    peer_->NoteAnswer();
    return Annotate(DecodeChunk(buffer, header, payload),
                    absl::StrCat("ps ", peer_->address));
  }

  void Cancel() override { context_.TryCancel(); }

  int64_t BytesMoved() override { return TcpBytesMoved(context_.peer()); }

  void Sever() override {
    context_.TryCancel();
    SeverTcp(context_.peer());
  }

 private:
  absl::Status Write(const ByteBuffer& buffer) {
    if (stream_->Write(buffer)) {
      return absl::OkStatus();
    }
    return End();
  }

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

}  // namespace

std::unique_ptr<PushPullStream> MakeGrpcPushPull(
    std::shared_ptr<const GrpcPeer> peer) {
  return std::make_unique<GrpcStream<GradientChunk, ValueChunk>>(
      std::move(peer), "/weir.ParameterServer/PushPull");
}

std::unique_ptr<PullRowsStream> MakeGrpcPullRows(
    std::shared_ptr<const GrpcPeer> peer) {
  return std::make_unique<GrpcStream<PullRowsChunk, RowChunk>>(
      std::move(peer), "/weir.ParameterServer/PullRows");
}

}  // namespace weir
