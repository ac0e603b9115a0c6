// A call of gRPC that moves rows of tables: PushRows.
//
// Place: parameter_service.cc listens for it. Its answer comes from the store
// on any thread, maybe after the client has left.
//
// Threads: safe.
#ifndef SERVER_PS_SERVICE_PUSH_ROWS_CALL_H_
#define SERVER_PS_SERVICE_PUSH_ROWS_CALL_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <utility>

#include "common/base/failpoint.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "proto/wire/chunk_codec.h"
#include "proto/wire/grpc_status.h"
#include "server/ps/service/call_queue.h"
#include "server/ps/store/store.h"

namespace weir {

// `Service` has RequestPushRows: a stream of raw messages, and one back.
template <class Service>
class PushRowsCall
    : public std::enable_shared_from_this<PushRowsCall<Service>> {
 public:
  static void Listen(Service* service, Store* store, CallQueue* queue) {
    auto call = std::make_shared<PushRowsCall>(service, store, queue);
    service->RequestPushRows(&call->context_, &call->stream_, queue->queue(),
                             queue->queue(),
                             queue->Start(&call->on_call_, call));
  }

  PushRowsCall(Service* service, Store* store, CallQueue* queue)
      : service_(service),
        store_(store),
        queue_(queue),
        stream_(&context_),
        update_(store),
        on_call_([this](bool ok) { OnCall(ok); }),
        on_read_([this](bool ok) { OnRead(ok); }),
        on_finished_([](bool) {}),
        on_call_done_([this](bool) { OnCallDone(); }) {
    context_.AsyncNotifyWhenDone(on_call_done_.tag());
  }

 private:
  void OnCall(bool ok) {
    if (!ok) {
      return;  // the server shuts down
    }
    Listen(service_, store_, queue_);
    queue_->Start(&on_call_done_, this->shared_from_this());
    Read();
  }

  void Read() {
    stream_.Read(&buffer_, queue_->Start(&on_read_, this->shared_from_this()));
  }

  void OnRead(bool ok) {
    if (!ok) {
      Finish(absl::InvalidArgumentError(
          "the stream ended before the update's last chunk"));
      return;
    }
    Failpoint("ps.recv");
    PushRowsChunk chunk;
    Payload payload;
    absl::Status status = DecodeChunk(buffer_, &chunk, &payload);
    if (status.ok()) {
      status = update_.Add(chunk, payload);
    }
    buffer_.Clear();
    if (!status.ok()) {
      Finish(status);
    } else if (chunk.last()) {
      update_.Apply([call = this->shared_from_this()](
                        absl::StatusOr<PushRowsReply> reply) {
        Failpoint("ps.before_ack");
        call->Finish(std::move(reply));
      });
    } else {
      Read();
    }
  }

  void Finish(absl::StatusOr<PushRowsReply> reply) {
    void* tag = nullptr;
    {
      MutexLock lock(&mutex_);
      if (client_gone_ || finish_started_) {
        return;
      }
      finish_started_ = true;
      tag = queue_->Start(&on_finished_, this->shared_from_this());
    }
    if (!reply.ok()) {
      stream_.FinishWithError(ToGrpcStatus(reply.status()), tag);
      return;
    }
    reply->set_incarnation(store_->incarnation());
    stream_.Finish(EncodeMessage(*reply), grpc::Status::OK, tag);
  }

  void OnCallDone() {
    MutexLock lock(&mutex_);
    client_gone_ = true;
  }

  Service* const service_;
  Store* const store_;
  CallQueue* const queue_;
  grpc::ServerContext context_;
  grpc::ByteBuffer buffer_;
  grpc::ServerAsyncReader<grpc::ByteBuffer, grpc::ByteBuffer> stream_;
  RowPush update_;

  Mutex mutex_;
  bool finish_started_ ABSL_GUARDED_BY(mutex_) = false;
  bool client_gone_ ABSL_GUARDED_BY(mutex_) = false;

  CallOperation on_call_;
  CallOperation on_read_;
  CallOperation on_finished_;
  CallOperation on_call_done_;
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_PUSH_ROWS_CALL_H_
