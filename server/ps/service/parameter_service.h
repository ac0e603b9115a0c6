// The wire of a ps: decodes, calls the store, encodes.
//
// Place: between gRPC and server/ps/store/store.h; proto/ps.proto is the
// specification. No rule about parameters is here.
//
// Invariants
//   I1. No handler blocks. What takes long runs on threads of the service's
//       own: Declare and Restore on one, the files of snapshots and Shrink on
//       another, reports with hot ids on a third.
//   I2. What a caller is told and may do beyond its method is decided here by
//       its identity: the slots that Hello names, the slots that a worker sets,
//       hot ids, shared memory.
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
#include "common/metrics/host_usage.h"
#include "proto/ps.pb.h"
#include "proto/security/access_control.h"
#include "proto/trace/trace_answers.h"
#include "server/ps/service/call_queue.h"
#include "server/ps/service/grpc_call.h"
#include "server/ps/service/leaving.h"
#include "server/ps/service/shm_service.h"
#include "server/ps/service/slot_rights.h"
#include "server/ps/store/store.h"
#include "server/ps/store/work_thread.h"

namespace weir {

class ParameterService {
 public:
  // `on_shutdown` is called with the reason after Shutdown was answered, on a
  // queue's thread. `access` is borrowed.
  ParameterService(Store* store, AccessControl* access,
                   std::function<void(const absl::Status&)> on_shutdown);

  // Makes Hello tell workers where shared memory is offered, and give each a
  // ticket. Borrowed. REQUIRES: TakeCalls was not called yet.
  void OfferSharedMemory(ShmService* shm) { shm_ = shm; }

  // Makes Hello tell `leaving` of chiefs, and chiefs whether this ps is to end.
  // `leaving` is borrowed. REQUIRES: TakeCalls was not called yet.
  void TellLeaving(Leaving* leaving) { leaving_ = leaving; }

  // Makes GetStatus tell how the process fares on its host. `host` is borrowed.
  // REQUIRES: TakeCalls was not called yet.
  void TellUsage(const HostMeter* host) { host_meter_ = host; }

  // What GetStatus answers; with `peers` also who has called.
  PsStatus Status(const GetStatusRequest& request, bool peers) const;

  // Returns what to register at the server builder.
  grpc::AsyncGenericService* service() { return &service_; }

  // Takes up calls on `queue` from now on. REQUIRES: the server runs.
  void TakeCalls(CallQueue* queue) { GrpcCall::Listen(&host_, queue); }

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
  absl::StatusOr<HelloReply> Hello(const HelloRequest& request,
                                   const Caller& caller);
  absl::StatusOr<PsStatus> GetStatus(const GetStatusRequest& request,
                                     const Caller& caller);
  absl::Status SetSlots(const SetSlotsRequest& request, const Caller& caller);
  // I2.
  SlotRights RightsOf(const Caller& caller) const;
  absl::Status Shutdown(const grpc::ByteBuffer& buffer, GrpcCall* call);

  Store* const store_;
  AccessControl* const access_;
  const std::function<void(const absl::Status&)> on_shutdown_;
  grpc::AsyncGenericService service_;
  GrpcCall::Methods methods_;
  GrpcCall::Host host_;
  ShmService* shm_ = nullptr;
  Leaving* leaving_ = nullptr;
  const HostMeter* host_meter_ = nullptr;
  TraceAnswers traces_;
  WorkThread work_;     // Declare and Restore
  WorkThread writes_;   // snapshots' files, and Shrink, never beside them
  WorkThread reports_;  // a report waits for no file, and no file for it
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_PARAMETER_SERVICE_H_
