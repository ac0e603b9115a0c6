// The chief's health service, for gRPC's tools and `weir probe`.
//
// Place: chief_server.cc registers it beside ChiefService.
// Threads: safe; gRPC's threads call it.
// Owns/borrows: borrows the access control, which must live until the server
//   has shut down.
#ifndef SERVER_CHIEF_HEALTH_SERVICE_H_
#define SERVER_CHIEF_HEALTH_SERVICE_H_

#include "proto/health.grpc.pb.h"
#include "proto/security/access_control.h"

namespace weir {

class HealthService : public grpc::health::v1::Health::CallbackService {
 public:
  explicit HealthService(AccessControl* access) : access_(access) {}

  grpc::ServerUnaryReactor* Check(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request,
      grpc::health::v1::HealthCheckResponse* response) override;

 private:
  AccessControl* const access_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_HEALTH_SERVICE_H_
