#include "server/ps/service/grpc_call.h"

#include <grpcpp/grpcpp.h>

#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exhausted.h"
#include "common/base/status.h"
#include "common/trace/trace.h"
#include "proto/wire/chunk_codec.h"
#include "proto/wire/grpc_status.h"

namespace weir {
namespace {

// gRPC aborts the process on two writes at once.
constexpr size_t kWindow = 1;

}  // namespace

void GrpcCall::Listen(const Host* host, CallQueue* queue) {
  auto call = std::make_shared<GrpcCall>(host, queue);
  host->service->RequestCall(&call->context_, &call->stream_, queue->queue(),
                             queue->queue(),
                             queue->Start(&call->on_call_, call));
}

GrpcCall::GrpcCall(const Host* host, CallQueue* queue)
    : AnswerFlow(host->store, Arena::Heap(), kWindow),
      host_(host),
      queue_(queue),
      stream_(&context_),
      on_call_([this](bool ok) { OnCall(ok); }),
      on_read_([this](bool ok) { OnRead(ok); }),
      on_written_(
          [this](bool ok) { OnWritten(std::exchange(writing_, nullptr), ok); }),
      on_finished_([this](bool) { Over(outcome_); }),
      on_call_done_([this](bool) { OnCallDone(); }) {
  context_.AsyncNotifyWhenDone(on_call_done_.tag());
}

void GrpcCall::OnCall(bool ok) {
  if (!ok) {
    return;  // the server shuts down
  }
  // First of all: the next client must not wait for this one's answers.
  Listen(host_, queue_);
  queue_->Start(&on_call_done_, shared_from_this());
  if (const absl::Status status = Begin(); !status.ok()) {
    Fail(status);
  }
}

absl::Status GrpcCall::Begin() {
  WEIR_ASSIGN_OR_RETURN(
      caller_, host_->access->Admit(context_.method(), context_));  // I2
  const auto method = host_->methods->find(context_.method());
  if (method == host_->methods->end()) {
    return absl::UnimplementedError(
        absl::StrCat("a ps has no method ", context_.method()));
  }
  handler_ = method->second(this);
  Read();
  return absl::OkStatus();
}

void GrpcCall::Read() {
  reading_ = true;
  stream_.Read(&buffer_, queue_->Start(&on_read_, shared_from_this()));
}

void GrpcCall::OnRead(bool ok) {
  absl::Status status;
  if (ok) {
    reading_ = false;
    heard_ = true;
    if (handler_.each_answered) {
      ++unanswered_;
    }
    const TraceSpan span("request");
    // Runs the request and its continuations on this thread; nothing in it
    // waits.
    status = OrExhausted([this] { return handler_.message(buffer_); });
    // What is kept of a payload holds its slices; the buffer is free to read.
    buffer_.Clear();
  } else if (handler_.end) {  // nothing will ever be read again
    status = OrExhausted([this] { return handler_.end(); });
  } else {
    NoMoreQuestions();
  }
  if (!status.ok()) {
    Fail(status);
    return;
  }
  ReadMore();
}

// I1. The last answer of a request reads on.
void GrpcCall::ReadMore() {
  if (!reading_ && !ended() && unanswered_ < kUnansweredMax) {
    Read();
  }
}

void GrpcCall::OnAnswered() {
  if (handler_.each_answered) {
    --unanswered_;
  }
  ReadMore();
}

// Under the lock, so that the queue knows of it before the call is done.
void GrpcCall::Reserve(bool finish) {
  CallOperation* operation = &on_written_;
  if (finish) {
    operation = &on_finished_;
  }
  tag_ = queue_->Start(operation, shared_from_this());
}

void GrpcCall::Write(Answer&& answer, bool last) {
  std::span<const char> payload;
  if (answer.values) {
    payload = {reinterpret_cast<const char*>(answer.values.data()),
               answer.bytes};
  }
  // The empty function holds the values until gRPC has sent the slice.
  const grpc::ByteBuffer buffer = EncodeChunk(
      *answer.message(), payload, [values = std::move(answer.values)] {});
  if (last) {
    stream_.WriteAndFinish(buffer, grpc::WriteOptions(), grpc::Status::OK,
                           tag_);
    return;
  }
  writing_ = std::move(answer.question);
  stream_.Write(buffer, tag_);
}

void GrpcCall::Finish(const absl::Status& status) {
  outcome_ = status;
  stream_.Finish(ToGrpcStatus(status), tag_);
}

void GrpcCall::OnCallDone() {
  // A call that ended as it should comes here as well, after its Finish.
  if (context_.IsCancelled()) {
    if (!heard_) {
      host_->access->OnEmptyCall(context_.peer());
    }
    ClientGone();
    Over(absl::CancelledError("the caller is gone"));
  }
}

void GrpcCall::Over(const absl::Status& status) {
  if (const auto after = std::exchange(after_, nullptr)) {
    after(status);
  }
}

}  // namespace weir
