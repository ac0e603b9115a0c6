// A call of gRPC that reads rows of tables: PullRows.
//
// Place: parameter_service.cc listens for it. Answers come from the store on
// any thread, maybe after the client has left.
//
// Threads: safe.
// Cost: no copy of rows in float32; the buffer is referenced until the bytes
//   have left.
#ifndef SERVER_PS_SERVICE_PULL_ROWS_CALL_H_
#define SERVER_PS_SERVICE_PULL_ROWS_CALL_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/io/crc32c.h"
#include "proto/wire/chunk_codec.h"
#include "proto/wire/grpc_status.h"
#include "server/ps/service/call_queue.h"
#include "server/ps/store/store.h"

namespace weir {

// `Service` has RequestPullRows: a stream of raw messages both ways.
template <class Service>
class PullRowsCall
    : public std::enable_shared_from_this<PullRowsCall<Service>> {
 public:
  // The same bound as ParameterService's for PushPull: over it the stream is
  // not read.
  static constexpr int kUnansweredMax = 256;

  static void Listen(Service* service, Store* store, CallQueue* queue) {
    auto call = std::make_shared<PullRowsCall>(service, store, queue);
    service->RequestPullRows(&call->context_, &call->stream_, queue->queue(),
                             queue->queue(),
                             queue->Start(&call->on_call_, call));
  }

  PullRowsCall(Service* service, Store* store, CallQueue* queue)
      : service_(service),
        store_(store),
        queue_(queue),
        stream_(&context_),
        on_call_([this](bool ok) { OnCall(ok); }),
        on_read_([this](bool ok) { OnRead(ok); }),
        on_written_([this](bool) { OnWritten(); }),
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
    if (!ok) {  // nothing will ever be read again
      {
        MutexLock lock(&mutex_);
        no_more_ = true;
      }
      Pump();
      return;
    }
    PullRowsChunk request;
    const absl::Status status = DecodeMessage(buffer_, &request);
    buffer_.Clear();
    bool full = false;
    {
      MutexLock lock(&mutex_);
      ++unanswered_;
      full = unanswered_ >= kUnansweredMax;
      reading_ = !full;
    }
    if (status.ok()) {
      store_->PullRows(request, [call = this->shared_from_this(),
                                 checksum = request.want().checksum()](
                                    absl::StatusOr<PulledRows> answer) {
        if (answer.ok() && checksum && answer->rows) {
          answer->header.set_crc32c(Crc32c(answer->rows.data(), answer->bytes));
        }
        call->OnAnswer(std::move(answer));
      });
    } else {
      OnAnswer(status);
    }
    if (!full) {
      Read();
    }
  }

  void OnAnswer(absl::StatusOr<PulledRows> answer) {
    {
      MutexLock lock(&mutex_);
      if (answer.ok()) {
        answer->header.set_incarnation(store_->incarnation());
        ready_.push_back(*std::move(answer));
      } else if (!failed_.has_value()) {
        failed_ = answer.status();
      }
    }
    Pump();
  }

  // Starts the next write, or the finish, if none is under way.
  void Pump() {
    PulledRows answer;
    grpc::Status status;
    void* tag = nullptr;
    bool finish = false;
    {
      MutexLock lock(&mutex_);
      if (writing_ || finish_started_ || client_gone_) {
        return;
      }
      if (failed_.has_value()) {
        finish = true;
        status = ToGrpcStatus(*failed_);
      } else if (!ready_.empty()) {
        writing_ = true;
        answer = std::move(ready_.front());
        ready_.pop_front();
        tag = queue_->Start(&on_written_, this->shared_from_this());
      } else if (no_more_ && unanswered_ == 0) {
        finish = true;
      } else {
        return;
      }
      if (finish) {
        finish_started_ = true;
        tag = queue_->Start(&on_finished_, this->shared_from_this());
      }
    }
    if (finish) {
      stream_.Finish(status, tag);
      return;
    }
    const std::span<const char> payload(
        answer.rows ? reinterpret_cast<const char*>(answer.rows.data())
                    : nullptr,
        answer.bytes);
    stream_.Write(EncodeChunk(answer.header, payload, [rows = answer.rows] {}),
                  tag);
  }

  void OnWritten() {
    bool read = false;
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      --unanswered_;
      read = !reading_ && !no_more_ && !failed_.has_value() && !client_gone_;
      reading_ = reading_ || read;
    }
    if (read) {
      Read();
    }
    Pump();
  }

  void OnCallDone() {
    MutexLock lock(&mutex_);
    client_gone_ = true;
    ready_.clear();
  }

  Service* const service_;
  Store* const store_;
  CallQueue* const queue_;
  grpc::ServerContext context_;
  grpc::ByteBuffer buffer_;
  grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer> stream_;

  Mutex mutex_;  // protects all below
  std::deque<PulledRows> ready_ ABSL_GUARDED_BY(mutex_);
  int unanswered_ ABSL_GUARDED_BY(mutex_) = 0;
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool no_more_ ABSL_GUARDED_BY(mutex_) = false;
  bool finish_started_ ABSL_GUARDED_BY(mutex_) = false;
  bool client_gone_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> failed_ ABSL_GUARDED_BY(mutex_);

  CallOperation on_call_;
  CallOperation on_read_;
  CallOperation on_written_;
  CallOperation on_finished_;
  CallOperation on_call_done_;
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_PULL_ROWS_CALL_H_
