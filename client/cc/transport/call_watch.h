// Ends calls of gRPC whose peer is lost.
//
// Place: under grpc_transport.cc. A deadline of gRPC is of the whole call, and
// a payload on a slow link takes as long as it takes; a watched call has a
// deadline of silence instead (peer_watch.h).
//
// Threads: safe. One thread of its own, which starts with the first call.
// Cost: a mutex twice a call.
#ifndef CLIENT_CC_TRANSPORT_CALL_WATCH_H_
#define CLIENT_CC_TRANSPORT_CALL_WATCH_H_

#include <grpcpp/client_context.h>

#include <chrono>
#include <list>
#include <thread>

#include "client/cc/transport/peer_watch.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace weir {

class CallWatch {
 private:
  struct Call {
    grpc::ClientContext* context = nullptr;
    PeerWatch watch;
    bool lost = false;
  };

 public:
  // A call from here to its end of scope, which must come before that of the
  // context.
  class Watched {
   public:
    Watched(CallWatch* owner, grpc::ClientContext* context,
            std::chrono::milliseconds timeout);
    ~Watched();
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

    // A part of the answer is here.
    void Heard();
    // The call was cancelled: nothing was heard for the timeout.
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
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // CLIENT_CC_TRANSPORT_CALL_WATCH_H_
