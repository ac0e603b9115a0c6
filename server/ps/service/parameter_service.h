// The wire of a ps: decodes, calls the store, encodes.
//
// Place: between gRPC and server/ps/store/store.h; proto/ps.proto is the
// specification. No rule about parameters is here.
//
// Invariants
//   I1. No handler blocks: Declare, Restore and the writing of a snapshot run
//       on a thread of the service's own, one after the other.
//   I2. A PushPull stream has at most kUnansweredMax requests without an
//       answer; over it the stream is not read.
// Threads: every method on the queues' threads, none on gRPC's own. Borrows the
//   store, which outlives the service.
#ifndef SERVER_PS_SERVICE_PARAMETER_SERVICE_H_
#define SERVER_PS_SERVICE_PARAMETER_SERVICE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/ps/service/call_queue.h"
#include "server/ps/service/leaving.h"
#include "server/ps/store/store.h"

namespace grpc {
class Service;
}

namespace weir {

class ParameterService {
 public:
  static constexpr int kUnansweredMax = 256;

  // `on_shutdown` hears why, after Shutdown was answered, on a queue's thread.
  ParameterService(Store* store,
                   std::function<void(const absl::Status&)> on_shutdown);
  // REQUIRES: the server that served it is gone.
  ~ParameterService();

  // Hello names this from now on (shm_service.h).
  // REQUIRES: before TakeCalls.
  void OfferSharedMemory(const std::string& name);

  // Hello tells it of chiefs, and chiefs of it, from now on. Borrowed.
  // REQUIRES: before TakeCalls.
  void TellLeaving(Leaving* leaving);

  // What to register at the server builder.
  grpc::Service* service();

  // Takes up calls on `queue` from now on.
  // REQUIRES: the server runs.
  void TakeCalls(CallQueue* queue);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_PARAMETER_SERVICE_H_
