// The wire of a ps: decodes, calls the store, encodes.
//
// Place: between gRPC and server/ps/store/store.h; proto/ps.proto is the
// specification. No rule about parameters is here.
//
// Invariants
//   I1. No handler blocks. What takes long runs on threads of the service's
//       own: Declare and Restore on one, the files of snapshots and Shrink on
//       another, reports with hot ids on a third.
// Threads: calls are handled on the queues' threads, never on gRPC's own.
// Owns/borrows: borrows the store, which outlives the service.
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
class AsyncGenericService;
}

namespace weir {

class ParameterService {
 public:
  // `on_shutdown` is called with the reason after Shutdown was answered, on a
  // queue's thread.
  ParameterService(Store* store,
                   std::function<void(const absl::Status&)> on_shutdown);
  // REQUIRES: the server that served it is gone.
  ~ParameterService();

  // Makes Hello tell clients where shared memory is offered (shm_service.h).
  // REQUIRES: TakeCalls was not called yet.
  void OfferSharedMemory(const std::string& name);

  // Makes Hello tell `leaving` of chiefs, and chiefs whether this ps is to end.
  // `leaving` is borrowed. REQUIRES: TakeCalls was not called yet.
  void TellLeaving(Leaving* leaving);

  // Returns what to register at the server builder.
  grpc::AsyncGenericService* service();

  // Takes up calls on `queue` from now on. REQUIRES: the server runs.
  void TakeCalls(CallQueue* queue);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_PARAMETER_SERVICE_H_
