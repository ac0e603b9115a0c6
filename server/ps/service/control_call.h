// Calls with one request and one reply, and calls that collect a stream into
// one reply.
//
// Place: parameter_service.cc gives them the store's methods.
// Threads: handlers run on the queue's thread; UnaryMethod::thread, when set,
//   runs `answer` in its place, for all requests or those that take long.
#ifndef SERVER_PS_SERVICE_CONTROL_CALL_H_
#define SERVER_PS_SERVICE_CONTROL_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/logging.h"
#include "proto/wire/grpc_status.h"
#include "server/ps/service/call_queue.h"
#include "server/ps/store/work_thread.h"

namespace weir {

template <typename Request, typename Reply>
struct UnaryMethod {
  using Writer = grpc::ServerAsyncResponseWriter<Reply>;
  // Asks gRPC for the next call: Service::Request<Method>.
  std::function<void(grpc::ServerContext*, Request*, Writer*,
                     grpc::ServerCompletionQueue*, void*)>
      take;
  std::function<absl::StatusOr<Reply>(const Request&)> answer;
  WorkThread* thread = nullptr;
  // Tells whether `thread` answers this request. Empty: it answers all.
  std::function<bool(const Request&)> takes_long = nullptr;
  // Called after the reply of a call that ended with OK has left. May be empty.
  std::function<void(const Request&)> after = nullptr;
};

template <typename Request, typename Reply>
class UnaryCall
    : public std::enable_shared_from_this<UnaryCall<Request, Reply>> {
 public:
  using Method = UnaryMethod<Request, Reply>;

  static void Listen(std::shared_ptr<const Method> method, CallQueue* queue) {
    auto call = std::make_shared<UnaryCall>(std::move(method), queue);
    call->method_->take(&call->context_, &call->request_, &call->writer_,
                        queue->queue(), queue->Start(&call->on_call_, call));
  }

  UnaryCall(std::shared_ptr<const Method> method, CallQueue* queue)
      : method_(std::move(method)),
        queue_(queue),
        writer_(&context_),
        on_call_([this](bool ok) { OnCall(ok); }),
        on_finished_([this](bool) { OnFinished(); }) {}

 private:
  void OnCall(bool ok) {
    if (!ok) {
      return;  // the server shuts down
    }
    Listen(method_, queue_);
    if (method_->thread == nullptr ||
        (method_->takes_long && !method_->takes_long(request_))) {
      Answer();
      return;
    }
    queue_->Hold();
    method_->thread->Run([call = this->shared_from_this()] {
      call->Answer();
      call->queue_->Release();
    });
  }

  void Answer() {
    const absl::StatusOr<Reply> reply = method_->answer(request_);
    void* tag = queue_->Start(&on_finished_, this->shared_from_this());
    if (reply.ok()) {
      ok_ = true;
      writer_.Finish(*reply, grpc::Status::OK, tag);
    } else {
      LOG_WARN("{}", reply.status().ToString());
      writer_.FinishWithError(ToGrpcStatus(reply.status()), tag);
    }
  }

  void OnFinished() {
    if (ok_ && method_->after) {
      method_->after(request_);
    }
  }

  const std::shared_ptr<const Method> method_;
  CallQueue* const queue_;
  grpc::ServerContext context_;
  Request request_;
  typename Method::Writer writer_;
  bool ok_ = false;
  CallOperation on_call_;
  CallOperation on_finished_;
};

// A stream of chunks in, one reply out. Derived: Push, Assign.
class CollectCall : public std::enable_shared_from_this<CollectCall> {
 public:
  using Stream = grpc::ServerAsyncReader<grpc::ByteBuffer, grpc::ByteBuffer>;

  explicit CollectCall(CallQueue* queue)
      : queue_(queue),
        stream_(&context_),
        on_call_([this](bool ok) { OnCall(ok); }),
        on_read_([this](bool ok) { OnRead(ok); }),
        on_finished_([](bool) {}) {}
  virtual ~CollectCall() = default;

  // Asks gRPC for the next call.
  void Listen() { Take(queue_->Start(&on_call_, shared_from_this())); }

 protected:
  // Service::Request<Method> with context_, stream_ and `tag`.
  virtual void Take(void* tag) = 0;
  // Another call of the same method, for the next client.
  virtual std::shared_ptr<CollectCall> Another() const = 0;
  virtual absl::Status Apply(const grpc::ByteBuffer& chunk) = 0;
  virtual grpc::ByteBuffer Reply() = 0;

  CallQueue* const queue_;
  grpc::ServerContext context_;
  Stream stream_;

 private:
  void OnCall(bool ok) {
    if (!ok) {
      return;  // the server shuts down
    }
    Another()->Listen();
    Read();
  }

  void Read() {
    stream_.Read(&buffer_, queue_->Start(&on_read_, shared_from_this()));
  }

  void OnRead(bool ok) {
    if (!ok) {  // the client has sent all, or is gone
      stream_.Finish(Reply(), grpc::Status::OK,
                     queue_->Start(&on_finished_, shared_from_this()));
      return;
    }
    if (const absl::Status status = Apply(buffer_); !status.ok()) {
      stream_.FinishWithError(ToGrpcStatus(status),
                              queue_->Start(&on_finished_, shared_from_this()));
      return;
    }
    buffer_.Clear();
    Read();
  }

  grpc::ByteBuffer buffer_;
  CallOperation on_call_;
  CallOperation on_read_;
  CallOperation on_finished_;
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_CONTROL_CALL_H_
