#include "server/ps/service/parameter_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "common/base/failpoint.h"
#include "common/base/status.h"
#include "proto/ps.grpc.pb.h"
#include "proto/wire/chunk_codec.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/wire_version.h"
#include "server/ps/service/control_call.h"
#include "server/ps/service/pull_rows_call.h"
#include "server/ps/service/push_rows_call.h"
#include "server/ps/service/snapshot_call.h"
#include "server/ps/service/value_call.h"
#include "server/ps/store/work_thread.h"

namespace weir {
namespace {

using grpc::ByteBuffer;
using PS = ParameterServer;
using BulkMethods = PS::WithRawMethod_Pull<
    PS::WithRawMethod_Push<PS::WithRawMethod_PushPull<PS::WithRawMethod_Assign<
        PS::WithRawMethod_PullRows<PS::WithRawMethod_PushRows<PS::Service>>>>>>;
using AllMethods = PS::WithAsyncMethod_Hello<
    PS::WithAsyncMethod_Declare<PS::WithAsyncMethod_Restore<
        PS::WithAsyncMethod_SetSlots<PS::WithAsyncMethod_Snapshot<
            PS::WithAsyncMethod_GetStatus<PS::WithAsyncMethod_Shutdown<
                PS::WithAsyncMethod_Shrink<BulkMethods>>>>>>>>;

// ------------------------------------------------------------ bulk methods

class PullCall : public ValueCall {
 public:
  static void Listen(BulkMethods* service, Store* store, CallQueue* queue) {
    auto call = std::make_shared<PullCall>(service, store, queue);
    service->RequestPull(&call->context_, &call->request_, &call->stream_,
                         queue->queue(), queue->queue(),
                         queue->Start(&call->on_call_, call));
  }

  PullCall(BulkMethods* service, Store* store, CallQueue* queue)
      : ValueCall(store, queue),
        service_(service),
        stream_(&context_),
        on_call_([this](bool ok) { OnCall(ok); }) {}

 private:
  void OnCall(bool ok) {
    if (!ok) {
      return;  // the server shuts down
    }
    // First of all: the next client must not wait for this one's answers.
    Listen(service_, store_, queue_);
    Begin();
    if (const absl::Status status = Answer(); !status.ok()) {
      Fail(status);
    }
  }

  absl::Status Answer() {
    PullRequest request;
    WEIR_RETURN_IF_ERROR(DecodeMessage(request_, &request));
    WEIR_ASSIGN_OR_RETURN(const int blocks,
                          store_->BlockCount(request.sender()));
    Question question;
    question.sender = std::move(*request.mutable_sender());
    question.want = std::move(*request.mutable_want());
    question.listed.assign(request.block().begin(), request.block().end());
    question.count = question.listed.size();
    if (question.listed.empty()) {  // asks for the whole shard
      question.count = static_cast<uint64_t>(blocks);
    }
    // A Pull has no way to say "not yet" about one block and go on.
    question.not_yet_fails = true;
    Ask(std::move(question));
    NoMoreQuestions();
    return absl::OkStatus();
  }

  void StartWrite(const ByteBuffer& buffer, void* tag) override {
    stream_.Write(buffer, tag);
  }
  void StartFinish(const absl::Status& status, void* tag) override {
    stream_.Finish(ToGrpcStatus(status), tag);
  }

  BulkMethods* const service_;
  ByteBuffer request_;
  grpc::ServerAsyncWriter<ByteBuffer> stream_;
  CallOperation on_call_;
};

class PushPullCall : public ValueCall {
 public:
  static void Listen(BulkMethods* service, Store* store, CallQueue* queue) {
    auto call = std::make_shared<PushPullCall>(service, store, queue);
    service->RequestPushPull(&call->context_, &call->stream_, queue->queue(),
                             queue->queue(),
                             queue->Start(&call->on_call_, call));
  }

  PushPullCall(BulkMethods* service, Store* store, CallQueue* queue)
      : ValueCall(store, queue),
        service_(service),
        stream_(&context_),
        on_call_([this](bool ok) { OnCall(ok); }),
        on_read_([this](bool ok) { OnRead(ok); }) {}

 private:
  void OnCall(bool ok) {
    if (!ok) {
      return;  // the server shuts down
    }
    Listen(service_, store_, queue_);
    Begin();
    Read();
  }

  void Read() {
    reading_ = true;
    stream_.Read(&buffer_, queue_->Start(&on_read_, shared_from_this()));
  }

  void OnRead(bool ok) {
    if (!ok) {  // nothing will ever be read again
      NoMoreQuestions();
      return;
    }
    reading_ = false;
    ++unanswered_;
    // Runs the push and its continuations on this thread; nothing in it waits
    // (I1).
    if (const absl::Status status = Answer(); !status.ok()) {
      Fail(status);
      return;
    }
    ReadMore();
  }

  // I2: over the bound the stream is not read, and HTTP/2's window holds the
  // client back. The last answer of a request reads on.
  void ReadMore() {
    if (!reading_ && !ended() &&
        unanswered_ < ParameterService::kUnansweredMax) {
      Read();
    }
  }

  absl::Status Answer() {
    GradientChunk chunk;
    Payload payload;
    WEIR_RETURN_IF_ERROR(DecodeChunk(buffer_, &chunk, &payload));
    // The payload holds the slices that it needs; the buffer is free to read.
    buffer_.Clear();
    return Take(std::move(chunk), std::move(payload));
  }

  void StartWrite(const ByteBuffer& buffer, void* tag) override {
    stream_.Write(buffer, tag);
  }
  void StartFinish(const absl::Status& status, void* tag) override {
    stream_.Finish(ToGrpcStatus(status), tag);
  }
  void OnAnswered() override {
    --unanswered_;
    ReadMore();
  }

  BulkMethods* const service_;
  ByteBuffer buffer_;
  grpc::ServerAsyncReaderWriter<ByteBuffer, ByteBuffer> stream_;
  // The queue's thread alone uses these two.
  bool reading_ = false;
  int unanswered_ = 0;
  CallOperation on_call_;
  CallOperation on_read_;
};

class PushCall : public CollectCall {
 public:
  PushCall(BulkMethods* service, Store* store, CallQueue* queue)
      : CollectCall(queue), service_(service), store_(store) {}

 private:
  void Take(void* tag) override {
    service_->RequestPush(&context_, &stream_, queue_->queue(), queue_->queue(),
                          tag);
  }
  std::shared_ptr<CollectCall> Another() const override {
    return std::make_shared<PushCall>(service_, store_, queue_);
  }

  absl::Status Apply(const ByteBuffer& buffer) override {
    Failpoint("ps.recv");
    GradientChunk chunk;
    Payload payload;
    WEIR_RETURN_IF_ERROR(DecodeChunk(buffer, &chunk, &payload));
    WEIR_ASSIGN_OR_RETURN(const Receipt receipt,
                          store_->Push(chunk, std::move(payload)));
    Count(chunk, receipt);
    return absl::OkStatus();
  }

  ByteBuffer Reply() override {
    Failpoint("ps.before_ack");
    sums_.set_incarnation(store_->incarnation());
    return EncodeMessage(sums_);
  }

  // One reply stands for the whole stream, so it counts blocks and names those
  // that the client must send again or report.
  void Count(const GradientChunk& chunk, const Receipt& receipt) {
    const uint32_t blocks = std::max(chunk.block_count(), 1u);
    switch (receipt.outcome()) {
      case Receipt::ACCEPTED:
        sums_.set_accepted(sums_.accepted() + blocks);
        break;
      case Receipt::DUPLICATE:
        sums_.set_duplicate(sums_.duplicate() + blocks);
        break;
      case Receipt::LEFT_OUT:
        sums_.add_left_out_block(chunk.block());
        sums_.add_bad_variable(receipt.bad_variable());
        break;
      case Receipt::DEFERRED:
        for (uint32_t i = 0; i < blocks; ++i) {
          sums_.add_deferred_block(chunk.block() + i);
        }
        break;
      default:
        break;
    }
  }

  BulkMethods* const service_;
  Store* const store_;
  PushReply sums_;
};

class AssignCall : public CollectCall {
 public:
  AssignCall(BulkMethods* service, Store* store, CallQueue* queue)
      : CollectCall(queue), service_(service), store_(store) {}

 private:
  void Take(void* tag) override {
    service_->RequestAssign(&context_, &stream_, queue_->queue(),
                            queue_->queue(), tag);
  }
  std::shared_ptr<CollectCall> Another() const override {
    return std::make_shared<AssignCall>(service_, store_, queue_);
  }

  absl::Status Apply(const ByteBuffer& buffer) override {
    AssignChunk chunk;
    Payload payload;
    WEIR_RETURN_IF_ERROR(DecodeChunk(buffer, &chunk, &payload));
    WEIR_RETURN_IF_ERROR(store_->Assign(chunk, payload));
    sums_.set_elements(sums_.elements() + payload.bytes() / sizeof(float));
    return absl::OkStatus();
  }
  ByteBuffer Reply() override { return EncodeMessage(sums_); }

  BulkMethods* const service_;
  Store* const store_;
  AssignReply sums_;
};

}  // namespace

class ParameterService::Impl : public AllMethods {
 public:
  Impl(Store* store, std::function<void(const absl::Status&)> on_shutdown)
      : store_(store), on_shutdown_(std::move(on_shutdown)) {}

  void set_shm_name(const std::string& name) { shm_name_ = name; }
  void set_leaving(Leaving* leaving) { leaving_ = leaving; }

  void TakeCalls(CallQueue* queue) {
    PullCall::Listen(this, store_, queue);
    PushPullCall::Listen(this, store_, queue);
    std::make_shared<PushCall>(this, store_, queue)->Listen();
    std::make_shared<AssignCall>(this, store_, queue)->Listen();
    PullRowsCall<BulkMethods>::Listen(this, store_, queue);
    PushRowsCall<BulkMethods>::Listen(this, store_, queue);
    SnapshotCall<AllMethods>::Listen(this, store_, &writes_, queue);
    Unary(&AllMethods::RequestHello, queue,
          [this](const HelloRequest& request) -> absl::StatusOr<HelloReply> {
            WEIR_RETURN_IF_ERROR(
                CheckWireVersion("the caller", request.wire_version()));
            HelloReply reply = store_->Hello();
            reply.set_wire_version(kWireVersion);
            reply.set_shm_name(shm_name_);
            if (leaving_ != nullptr) {
              if (request.chief()) {
                leaving_->OnChief();
              }
              reply.set_leaving(leaving_->begun());
            }
            return reply;
          });
    Unary(
        &AllMethods::RequestGetStatus, queue,
        [this](const GetStatusRequest& request) {
          return store_->GetStatus(static_cast<int>(request.hot_ids()));
        },
        &reports_, nullptr,
        // Hot ids are found by looking at every row.
        [](const GetStatusRequest& request) { return request.hot_ids() > 0; });
    // On the queue's thread: it takes locks for as long as one block's
    // arithmetic, and a worker waits for it to begin.
    Unary(&AllMethods::RequestSetSlots, queue,
          [this](const SetSlotsRequest& request) {
            return Empty<SetSlotsReply>(store_->SetSlots(request));
          });
    // I1. Declare and Restore fill or read gigabytes.
    Unary(
        &AllMethods::RequestDeclare, queue,
        [this](const DeclareRequest& request) {
          return store_->Declare(request);
        },
        &work_);
    Unary(
        &AllMethods::RequestShrink, queue,
        [this](const ShrinkRequest& request) {
          return store_->Shrink(request);
        },
        &writes_);
    Unary(
        &AllMethods::RequestRestore, queue,
        [this](const RestoreRequest& request) {
          return store_->Restore(request);
        },
        &work_);
    // The process ends after the reply has left, so that the chief hears that
    // it was heard.
    Unary(
        &AllMethods::RequestShutdown, queue,
        [this](const ShutdownRequest& request) {
          return Empty<ShutdownReply>(store_->CheckShutdown(request));
        },
        nullptr,
        [this](const ShutdownRequest& request) {
          on_shutdown_(absl::Status(
              static_cast<absl::StatusCode>(request.code()), request.reason()));
        });
  }

 private:
  template <typename Reply>
  static absl::StatusOr<Reply> Empty(const absl::Status& status) {
    if (!status.ok()) {
      return status;
    }
    return Reply();
  }

  // Takes calls of the method behind `take` and answers them with `answer`.
  template <typename Base, typename Request, typename Reply, typename Answer>
  void Unary(void (Base::*take)(grpc::ServerContext*, Request*,
                                grpc::ServerAsyncResponseWriter<Reply>*,
                                grpc::CompletionQueue*,
                                grpc::ServerCompletionQueue*, void*),
             CallQueue* queue, Answer answer, WorkThread* thread = nullptr,
             const std::type_identity_t<std::function<void(const Request&)>>&
                 after = nullptr,
             const std::type_identity_t<std::function<bool(const Request&)>>&
                 takes_long = nullptr) {
    using Method = UnaryMethod<Request, Reply>;
    auto method = std::make_shared<Method>();
    method->take = [this, take](grpc::ServerContext* context, Request* request,
                                typename Method::Writer* writer,
                                grpc::ServerCompletionQueue* calls, void* tag) {
      (this->*take)(context, request, writer, calls, calls, tag);
    };
    method->answer = std::move(answer);
    method->thread = thread;
    method->after = after;
    method->takes_long = takes_long;
    UnaryCall<Request, Reply>::Listen(std::move(method), queue);
  }

  Store* const store_;
  const std::function<void(const absl::Status&)> on_shutdown_;
  std::string shm_name_;
  Leaving* leaving_ = nullptr;
  WorkThread work_;     // Declare and Restore
  WorkThread writes_;   // snapshots' files, and Shrink, never beside them
  WorkThread reports_;  // a report waits for no file, and no file for it
};

ParameterService::ParameterService(
    Store* store, std::function<void(const absl::Status&)> on_shutdown)
    : impl_(std::make_unique<Impl>(store, std::move(on_shutdown))) {}

ParameterService::~ParameterService() = default;

grpc::Service* ParameterService::service() { return impl_.get(); }

void ParameterService::OfferSharedMemory(const std::string& name) {
  impl_->set_shm_name(name);
}

void ParameterService::TellLeaving(Leaving* leaving) {
  impl_->set_leaving(leaving);
}

void ParameterService::TakeCalls(CallQueue* queue) { impl_->TakeCalls(queue); }

}  // namespace weir
