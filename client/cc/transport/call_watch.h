// Ends calls of gRPC whose peer is lost.
//
// Place: under grpc_transport.cc. A deadline of gRPC bounds the whole call, but
// a payload on a slow link may take long without any fault. A watched call has
// a bound for silence instead (peer_watch.h).
//
// Threads: safe. It has one thread of its own, which starts with the first
// call.
// Cost: locks a mutex twice a call.
#ifndef CLIENT_CC_TRANSPORT_CALL_WATCH_H_
#define CLIENT_CC_TRANSPORT_CALL_WATCH_H_

#include <grpcpp/client_context.h>

#include <chrono>
#include <list>

#include "client/cc/transport/peer_watch.h"
#include "common/base/mutex.h"
#include "common/threads/thread.h"

namespace weir {

class CallWatch {
 private:
  struct Call {
    grpc::ClientContext* context = nullptr;
    PeerWatch watch;
    bool lost = false;
  };

 public:
  // Watches a call while it is in scope. REQUIRES: the context outlives it.
  class Watched {
   public:
    Watched(CallWatch* owner, grpc::ClientContext* context,
            std::chrono::milliseconds timeout);
    ~Watched();
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

    // Whether the watch has cancelled the call, since nothing was heard for the
    // timeout.
    bool lost() const;

   private:
    CallWatch* const owner_;
    const std::list<Call>::iterator call_;
  };

  CallWatch() = default;
  ~CallWatch();

 private:
  std::list<Call>::iterator Add(grpc::ClientContext* context,
                                std::chrono::milliseconds timeout);
  void Run();

  mutable Mutex mutex_;
  CondVar changed_;
  std::list<Call> calls_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // CLIENT_CC_TRANSPORT_CALL_WATCH_H_
