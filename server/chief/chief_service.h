// The chief's gRPC methods. They hand every request to the runner; they decide
// nothing and wait for nobody.
//
// Until it has its runner every call ends with UNAVAILABLE. A chief takes its
// port before it does anything else, so that a second chief at the same address
// does nothing.
//
// Invariants
//   I1. Nothing of a request is used before its caller was admitted.
// Threads: safe; gRPC's threads call it.
// Owns/borrows: borrows the runner and the access control, which must live
//   until the server that this is registered with has shut down.
#ifndef SERVER_CHIEF_CHIEF_SERVICE_H_
#define SERVER_CHIEF_CHIEF_SERVICE_H_

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "proto/chief.grpc.pb.h"
#include "proto/security/access_control.h"
#include "server/chief/chief_runner.h"
#include "server/chief/trace_collector.h"

namespace weir {

class ChiefService : public Chief::CallbackService {
 public:
  explicit ChiefService(AccessControl* access) : access_(access) {}

  // Call once.
  void SetRunner(ChiefRunner* runner) { runner_ = runner; }

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const RegisterRequest* request,
                                     RegisterReply* reply) override;
  grpc::ServerBidiReactor<Progress, Command>* Heartbeat(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const ChiefStatusRequest* request,
                                      ChiefStatus* reply) override;
  grpc::ServerUnaryReactor* GetReport(grpc::CallbackServerContext* context,
                                      const ReportRequest* request,
                                      JobReport* reply) override;
  grpc::ServerUnaryReactor* Trace(grpc::CallbackServerContext* context,
                                  const TraceRequest* request,
                                  TraceReply* reply) override;
  grpc::ServerUnaryReactor* PutTrace(grpc::CallbackServerContext* context,
                                     const PutTraceRequest* request,
                                     PutTraceReply* reply) override;

 private:
  AccessControl* const access_;
  std::atomic<ChiefRunner*> runner_{nullptr};
  // Shared with events of the runner, which outlives the service.
  const std::shared_ptr<TraceCollector> traces_ =
      std::make_shared<TraceCollector>();
};

}  // namespace weir

#endif  // SERVER_CHIEF_CHIEF_SERVICE_H_
