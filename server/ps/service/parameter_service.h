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
// Owns/borrows: borrows the store, which outlives the service. The service
//   outlives the server that serves it.
#ifndef SERVER_PS_SERVICE_PARAMETER_SERVICE_H_
#define SERVER_PS_SERVICE_PARAMETER_SERVICE_H_

#include <grpcpp/generic/async_generic_service.h>

#include <functional>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ps.pb.h"
#include "server/ps/service/call_queue.h"
#include "server/ps/service/grpc_call.h"
#include "server/ps/service/leaving.h"
#include "server/ps/store/store.h"
#include "server/ps/store/work_thread.h"

namespace weir {

class ParameterService {
 public:
  // `on_shutdown` is called with the reason after Shutdown was answered, on a
  // queue's thread.
  ParameterService(Store* store,
                   std::function<void(const absl::Status&)> on_shutdown);

  // Makes Hello tell clients where shared memory is offered (shm_service.h).
  // REQUIRES: TakeCalls was not called yet.
  void OfferSharedMemory(const std::string& name) { shm_name_ = name; }

  // Makes Hello tell `leaving` of chiefs, and chiefs whether this ps is to end.
  // `leaving` is borrowed. REQUIRES: TakeCalls was not called yet.
  void TellLeaving(Leaving* leaving) { leaving_ = leaving; }

  // Returns what to register at the server builder.
  grpc::AsyncGenericService* service() { return &service_; }

  // Takes up calls on `queue` from now on. REQUIRES: the server runs.
  void TakeCalls(CallQueue* queue) {
    GrpcCall::Listen(&service_, &methods_, store_, queue);
  }

 private:
  void Add(const std::string& name,
           std::function<GrpcCall::Handler(GrpcCall*)> method);
  void AddStreams();
  void AddControl();
  // A method with one request and one reply. `thread_for` says which thread
  // answers a request; null: the queue's.
  template <typename Request, typename Answer>
  void AddUnary(const std::string& name, Answer answer,
                std::type_identity_t<std::function<WorkThread*(const Request&)>>
                    thread_for = nullptr);

  absl::Status Pull(const grpc::ByteBuffer& buffer, GrpcCall* call);
  absl::Status Snapshot(const grpc::ByteBuffer& buffer, GrpcCall* call);
  absl::StatusOr<HelloReply> Hello(const HelloRequest& request);
  absl::Status Shutdown(const grpc::ByteBuffer& buffer, GrpcCall* call);

  Store* const store_;
  const std::function<void(const absl::Status&)> on_shutdown_;
  grpc::AsyncGenericService service_;
  GrpcCall::Methods methods_;
  std::string shm_name_;
  Leaving* leaving_ = nullptr;
  WorkThread work_;     // Declare and Restore
  WorkThread writes_;   // snapshots' files, and Shrink, never beside them
  WorkThread reports_;  // a report waits for no file, and no file for it
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_PARAMETER_SERVICE_H_
