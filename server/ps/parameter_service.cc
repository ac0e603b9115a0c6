#include "server/ps/parameter_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "common/failpoint.h"
#include "common/logging.h"
#include "common/mutex.h"
#include "common/status.h"
#include "proto/chunk_codec.h"
#include "proto/grpc_status.h"
#include "proto/ps.grpc.pb.h"
#include "server/ps/value_call.h"

namespace weir {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;
using PS = ParameterServer;
using BulkMethods = PS::WithRawMethod_Pull<
    PS::WithRawMethod_Push<PS::WithRawMethod_PushPull<PS::Service>>>;
using UnaryMethods = PS::WithCallbackMethod_Hello<
    PS::WithCallbackMethod_Declare<PS::WithCallbackMethod_Restore<
        PS::WithCallbackMethod_SetSlots<PS::WithCallbackMethod_GetStatus<
            PS::WithCallbackMethod_Shutdown<BulkMethods>>>>>>;
using AllMethods = PS::WithRawCallbackMethod_Assign<
    PS::WithCallbackMethod_Snapshot<UnaryMethods>>;

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
    question.count = question.listed.empty() ? static_cast<uint64_t>(blocks)
                                             : question.listed.size();
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
    if (const absl::Status status = Answer(); !status.ok()) {
      Fail(status);
      return;
    }
    ReadMore();
  }

  void ReadMore() {
    if (!reading_ && !ended() &&
        unanswered_ < ParameterService::kUnansweredMax) {
      Read();
    }
  }

  absl::Status Answer() {
    Failpoint("ps.recv");
    GradientChunk chunk;
    Payload payload;
    WEIR_RETURN_IF_ERROR(DecodeChunk(buffer_, &chunk, &payload));
    buffer_.Clear();
    Question question;
    if (chunk.has_push()) {
      WEIR_ASSIGN_OR_RETURN(question.receipt,
                            store_->Push(chunk, std::move(payload)));
      Failpoint("ps.before_ack");
    }
    if (chunk.has_want()) {
      question.sender = std::move(*chunk.mutable_sender());
      question.want = std::move(*chunk.mutable_want());
      question.block_count = chunk.block_count();
      question.first = chunk.block();
      question.count = std::max(chunk.block_count(), 1u);
      Ask(std::move(question));
    } else if (chunk.has_push()) {
      Acknowledge(chunk.block(), chunk.block_count(), *question.receipt);
    } else {
      return absl::InvalidArgumentError(
          "a request of PushPull needs `push` or `want`");
    }
    return absl::OkStatus();
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

class PushCall : public std::enable_shared_from_this<PushCall> {
 public:
  static void Listen(BulkMethods* service, Store* store, CallQueue* queue) {
    auto call = std::make_shared<PushCall>(service, store, queue);
    service->RequestPush(&call->context_, &call->stream_, queue->queue(),
                         queue->queue(), queue->Start(&call->on_call_, call));
  }

  PushCall(BulkMethods* service, Store* store, CallQueue* queue)
      : service_(service),
        store_(store),
        queue_(queue),
        stream_(&context_),
        on_call_([this](bool ok) { OnCall(ok); }),
        on_read_([this](bool ok) { OnRead(ok); }),
        on_finished_([](bool) {}) {}

 private:
  void OnCall(bool ok) {
    if (!ok) {
      return;  // the server shuts down
    }
    Listen(service_, store_, queue_);
    Read();
  }

  void Read() {
    stream_.Read(&buffer_, queue_->Start(&on_read_, shared_from_this()));
  }

  void OnRead(bool ok) {
    if (!ok) {  // the client has sent all, or is gone
      Failpoint("ps.before_ack");
      sums_.set_incarnation(store_->incarnation());
      stream_.Finish(EncodeMessage(sums_), grpc::Status::OK,
                     queue_->Start(&on_finished_, shared_from_this()));
      return;
    }
    if (const absl::Status status = Apply(); !status.ok()) {
      stream_.FinishWithError(ToGrpcStatus(status),
                              queue_->Start(&on_finished_, shared_from_this()));
      return;
    }
    Read();
  }

  absl::Status Apply() {
    Failpoint("ps.recv");
    GradientChunk chunk;
    Payload payload;
    WEIR_RETURN_IF_ERROR(DecodeChunk(buffer_, &chunk, &payload));
    buffer_.Clear();
    if (!chunk.has_push()) {
      return absl::InvalidArgumentError("a chunk of Push needs `push`");
    }
    WEIR_ASSIGN_OR_RETURN(const Receipt receipt,
                          store_->Push(chunk, std::move(payload)));
    Count(chunk, receipt);
    return absl::OkStatus();
  }

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
  CallQueue* const queue_;
  grpc::ServerContext context_;
  ByteBuffer buffer_;
  grpc::ServerAsyncReader<ByteBuffer, ByteBuffer> stream_;
  PushReply sums_;
  CallOperation on_call_;
  CallOperation on_read_;
  CallOperation on_finished_;
};

// --------------------------------------------------------- control methods

// Runs functions on one thread of its own, in order.
class WorkThread {
 public:
  WorkThread() : thread_([this] { Loop(); }) {}
  ~WorkThread() {
    Run(nullptr);
    thread_.join();
  }

  // An empty `work` ends the thread after what was queued before it.
  void Run(std::function<void()> work) {
    MutexLock lock(&mutex_);
    queue_.push_back(std::move(work));
    changed_.NotifyOne();
  }

 private:
  std::function<void()> Next() {
    MutexLock lock(&mutex_);
    while (queue_.empty()) {
      changed_.Wait(&mutex_);
    }
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    return work;
  }

  void Loop() {
    while (const std::function<void()> work = Next()) {
      work();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: uses all of the above
};

class AssignCall : public grpc::ServerReadReactor<ByteBuffer> {
 public:
  AssignCall(Store* store, ByteBuffer* reply) : store_(store), reply_(reply) {
    StartRead(&buffer_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      *reply_ = EncodeMessage(sums_);
      Finish(grpc::Status::OK);
      return;
    }
    if (const absl::Status status = Assign(); !status.ok()) {
      Finish(ToGrpcStatus(status));
      return;
    }
    StartRead(&buffer_);
  }
  void OnDone() override { delete this; }

 private:
  absl::Status Assign() {
    AssignChunk chunk;
    Payload payload;
    WEIR_RETURN_IF_ERROR(DecodeChunk(buffer_, &chunk, &payload));
    buffer_.Clear();
    WEIR_RETURN_IF_ERROR(store_->Assign(chunk, payload));
    sums_.set_elements(sums_.elements() + payload.bytes() / sizeof(float));
    return absl::OkStatus();
  }

  Store* const store_;
  ByteBuffer* const reply_;
  ByteBuffer buffer_;
  AssignReply sums_;
};

// Replies arrive from the store on any thread, maybe after the client left.
class SnapshotCall : public grpc::ServerWriteReactor<SnapshotReply> {
 public:
  static SnapshotCall* Start(Store* store, const SnapshotRequest& request,
                             WorkThread* work) {
    auto call = std::make_shared<SnapshotCall>();
    call->self_ = call;
    store->Snapshot(
        request,
        [call](absl::StatusOr<SnapshotReply> reply) {
          call->OnReply(std::move(reply));
        },
        [work](std::function<void()> write) { work->Run(std::move(write)); });
    return call.get();
  }

  void OnWriteDone(bool) override {
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      replies_.pop_front();
    }
    Go();
  }
  void OnCancel() override { End(absl::CancelledError("the caller left")); }
  void OnDone() override { self_.reset(); }

 private:
  void OnReply(absl::StatusOr<SnapshotReply> reply) {
    if (!reply.ok()) {
      End(reply.status());
      return;
    }
    const bool last = reply->has_file();
    {
      MutexLock lock(&mutex_);
      replies_.push_back(*std::move(reply));
    }
    if (last) {
      End(absl::OkStatus());
    } else {
      Go();
    }
  }

  void End(const absl::Status& status) {
    {
      MutexLock lock(&mutex_);
      if (!final_.has_value()) {
        final_ = status;
      }
    }
    Go();
  }

  // Starts the next write, or the finish, if none is under way.
  void Go() {
    const SnapshotReply* reply = nullptr;
    grpc::Status status;
    {
      MutexLock lock(&mutex_);
      if (writing_ || finished_) {
        return;
      }
      if (!replies_.empty()) {
        writing_ = true;
        reply = &replies_.front();
      } else if (final_.has_value()) {
        finished_ = true;
        status = ToGrpcStatus(*final_);
      } else {
        return;
      }
    }
    if (reply != nullptr) {
      StartWrite(reply);
    } else {
      Finish(status);
    }
  }

  std::shared_ptr<SnapshotCall> self_;  // until OnDone
  Mutex mutex_;
  std::deque<SnapshotReply> replies_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> final_ ABSL_GUARDED_BY(mutex_);
};

class ShutdownCall : public grpc::ServerUnaryReactor {
 public:
  ShutdownCall(const absl::Status& status, std::function<void()> on_shutdown)
      : ok_(status.ok()), on_shutdown_(std::move(on_shutdown)) {
    Finish(ToGrpcStatus(status));
  }
  void OnDone() override {
    if (ok_ && on_shutdown_) {
      on_shutdown_();
    }
    delete this;
  }

 private:
  const bool ok_;
  const std::function<void()> on_shutdown_;
};

}  // namespace

class ParameterService::Impl : public AllMethods {
 public:
  Impl(Store* store, std::function<void()> on_shutdown)
      : store_(store), on_shutdown_(std::move(on_shutdown)) {}

  void TakeCalls(CallQueue* queue) {
    PullCall::Listen(this, store_, queue);
    PushCall::Listen(this, store_, queue);
    PushPullCall::Listen(this, store_, queue);
  }

  grpc::ServerUnaryReactor* Hello(CallbackServerContext* context,
                                  const HelloRequest*,
                                  HelloReply* reply) override {
    *reply = store_->Hello();
    return Done(context, absl::OkStatus());
  }

  grpc::ServerUnaryReactor* GetStatus(CallbackServerContext* context,
                                      const GetStatusRequest*,
                                      PsStatus* reply) override {
    *reply = store_->GetStatus();
    return Done(context, absl::OkStatus());
  }

  grpc::ServerUnaryReactor* SetSlots(CallbackServerContext* context,
                                     const SetSlotsRequest* request,
                                     SetSlotsReply*) override {
    return Done(context, store_->SetSlots(*request));
  }

  grpc::ServerUnaryReactor* Declare(CallbackServerContext* context,
                                    const DeclareRequest* request,
                                    DeclareReply* reply) override {
    return Later(context, reply,
                 [this, request] { return store_->Declare(*request); });
  }

  grpc::ServerUnaryReactor* Restore(CallbackServerContext* context,
                                    const RestoreRequest* request,
                                    DeclareReply* reply) override {
    return Later(context, reply,
                 [this, request] { return store_->Restore(*request); });
  }

  grpc::ServerReadReactor<ByteBuffer>* Assign(CallbackServerContext*,
                                              ByteBuffer* reply) override {
    return new AssignCall(store_, reply);
  }

  grpc::ServerWriteReactor<SnapshotReply>* Snapshot(
      CallbackServerContext*, const SnapshotRequest* request) override {
    return SnapshotCall::Start(store_, *request, &work_);
  }

  grpc::ServerUnaryReactor* Shutdown(CallbackServerContext*,
                                     const ShutdownRequest* request,
                                     ShutdownReply*) override {
    return new ShutdownCall(store_->CheckSender(request->sender()),
                            on_shutdown_);
  }

 private:
  static grpc::ServerUnaryReactor* Done(CallbackServerContext* context,
                                        const absl::Status& status) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }

  // Calls `work` on the work thread; gRPC keeps request and reply till Finish.
  template <typename Reply, typename Work>
  grpc::ServerUnaryReactor* Later(CallbackServerContext* context, Reply* reply,
                                  Work work) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    work_.Run([reactor, reply, work] {
      absl::StatusOr<Reply> result = work();
      if (result.ok()) {
        *reply = *std::move(result);
      } else {
        LOG_WARN("{}", result.status().ToString());
      }
      reactor->Finish(ToGrpcStatus(result.status()));
    });
    return reactor;
  }

  Store* const store_;
  const std::function<void()> on_shutdown_;
  WorkThread work_;
};

ParameterService::ParameterService(Store* store,
                                   std::function<void()> on_shutdown)
    : impl_(std::make_unique<Impl>(store, std::move(on_shutdown))) {}

ParameterService::~ParameterService() = default;

grpc::Service* ParameterService::service() { return impl_.get(); }

void ParameterService::TakeCalls(CallQueue* queue) { impl_->TakeCalls(queue); }

}  // namespace weir
