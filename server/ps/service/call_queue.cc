#include "server/ps/service/call_queue.h"

#include "common/base/exhausted.h"
#include "common/base/logging.h"
#include "common/threads/thread.h"
#include "common/trace/trace.h"

namespace weir {

CallQueue::CallQueue(std::unique_ptr<grpc::ServerCompletionQueue> queue)
    : queue_(std::move(queue)) {}

void CallQueue::Run() {
  thread_ = Thread([this] { Loop(); });
}

void* CallQueue::Start(CallOperation* operation, std::shared_ptr<void> call) {
  // I1: the operation holds its call until Loop has run the handler.
  operation->call_ = std::move(call);
  MutexLock lock(&mutex_);
  ++under_way_;
  return operation;
}

void CallQueue::Loop() {
  NameTraceLane("requests");
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
    auto* operation = static_cast<CallOperation*>(tag);
    {
      // The handler may start this very operation again, so the reference
      // moves out first; it may be the last one.
      const std::shared_ptr<void> call = std::move(operation->call_);
      // One call that finds no memory must not end the others.
      const absl::Status status = OrExhausted([&] {
        operation->handler_(ok);
        return absl::OkStatus();
      });
      if (!status.ok()) {
        LOG_ERROR("a call goes no further: {}", status.ToString());
      }
    }
    // After the handler: what it has started counts already, so Stop never sees
    // an idle queue in the middle of a call (I2).
    MutexLock lock(&mutex_);
    if (--under_way_ == 0) {
      idle_.NotifyAll();
    }
  }
}

void CallQueue::Stop() {
  {
    MutexLock lock(&mutex_);
    while (under_way_ > 0) {
      idle_.Wait(&mutex_);
    }
  }
  queue_->Shutdown();
  // gRPC wants a queue to be drained also if its server never ran.
  if (!thread_.joinable()) {
    Run();
  }
  thread_.join();
}

}  // namespace weir
