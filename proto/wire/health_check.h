// How a server of Weir answers gRPC's health check (proto/health.proto).
#ifndef PROTO_WIRE_HEALTH_CHECK_H_
#define PROTO_WIRE_HEALTH_CHECK_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/health.pb.h"

namespace weir {

// As a method's name, for the table of who may call what.
inline constexpr char kHealthCheckMethod[] = "/grpc.health.v1.Health/Check";

// SERVING for the server itself and for its one service, such as
// "weir.ParameterServer". Errors: NOT_FOUND  another service.
absl::StatusOr<grpc::health::v1::HealthCheckResponse> CheckHealth(
    const grpc::health::v1::HealthCheckRequest& request,
    absl::string_view own_service);

}  // namespace weir

#endif  // PROTO_WIRE_HEALTH_CHECK_H_
