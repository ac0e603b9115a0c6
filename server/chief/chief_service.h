// The chief's gRPC methods. They hand every request to the runner; they decide
// nothing and wait for nobody.
//
// Until it has its runner every call ends with UNAVAILABLE. A chief takes its
// port before it does anything else, so that a second chief at the same address
// does nothing.
//
// Threads: safe; gRPC's threads call it.
// Owns/borrows: borrows the runner, which must live until the server that this
//   is registered with has shut down.
#ifndef SERVER_CHIEF_CHIEF_SERVICE_H_
#define SERVER_CHIEF_CHIEF_SERVICE_H_

#include <atomic>

#include "proto/chief.grpc.pb.h"
#include "server/chief/chief_runner.h"

namespace weir {

class ChiefService : public Chief::CallbackService {
 public:
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

 private:
  std::atomic<ChiefRunner*> runner_{nullptr};
};

}  // namespace weir

#endif  // SERVER_CHIEF_CHIEF_SERVICE_H_
