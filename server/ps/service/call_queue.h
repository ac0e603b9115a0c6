// One gRPC completion queue, its thread, and the operations under way on it.
//
// Place: under every call of the service. One thread polls, reads, applies,
// writes: with gRPC's callback API in the same server its threads poll too, and
// every chunk changes threads (docs/design_notes.md, "Threads of a ps").
//
// Terms
//   operation  one thing that gRPC was asked to do for a call (read, write,
//              finish, ...), reported once on the queue's thread.
//
// Invariants
//   I1. A call lives while one of its operations is under way.
//   I2. The queue is shut down only when nothing is under way: an operation
//       that starts on a queue after its shutdown aborts the process.
// Threads: Start is safe; handlers run on the queue's one thread.
#ifndef SERVER_PS_SERVICE_CALL_QUEUE_H_
#define SERVER_PS_SERVICE_CALL_QUEUE_H_

#include <grpcpp/completion_queue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "common/base/mutex.h"
#include "common/threads/thread.h"

namespace weir {

class CallQueue;

// A member of a call: one kind of operation, at most one of it under way.
class CallOperation {
 public:
  // `handler` gets gRPC's `ok`: false when the operation came to nothing.
  explicit CallOperation(std::function<void(bool)> handler)
      : handler_(std::move(handler)) {}
  CallOperation(const CallOperation&) = delete;
  CallOperation& operator=(const CallOperation&) = delete;

  // The tag to give to gRPC where the operation starts later (see Start).
  void* tag() { return this; }

 private:
  friend class CallQueue;
  const std::function<void(bool)> handler_;
  std::shared_ptr<void> call_;  // keeps the call alive while under way
};

class CallQueue {
 public:
  explicit CallQueue(std::unique_ptr<grpc::ServerCompletionQueue> queue);
  // REQUIRES: Stop was called.
  ~CallQueue() = default;

  grpc::ServerCompletionQueue* queue() { return queue_.get(); }

  // Starts the thread; the server must be running.
  void Run();

  // Marks `operation` of `call` as under way and returns gRPC's tag for it.
  void* Start(CallOperation* operation, std::shared_ptr<void> call);

  // Waits for the operations under way, ends the thread.
  // REQUIRES: the server was shut down; so all of them end.
  void Stop();

 private:
  void Loop();

  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  Mutex mutex_;
  CondVar idle_;
  int64_t under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  Thread thread_;
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_CALL_QUEUE_H_
