#include "server/chief/health_service.h"

#include "common/base/status.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/health_check.h"

namespace weir {

grpc::ServerUnaryReactor* HealthService::Check(
    grpc::CallbackServerContext* context,
    const grpc::health::v1::HealthCheckRequest* request,
    grpc::health::v1::HealthCheckResponse* response) {
  const auto check = [&]() -> absl::Status {
    // Nothing of the request is used before its caller was admitted.
    WEIR_RETURN_IF_ERROR(access_->Admit(kHealthCheckMethod, *context).status());
    WEIR_ASSIGN_OR_RETURN(*response, CheckHealth(*request, "weir.Chief"));
    return absl::OkStatus();
  };
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(check()));
  return reactor;
}

}  // namespace weir
