#include "proto/wire/health_check.h"

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"

namespace weir {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

absl::StatusOr<HealthCheckResponse> CheckHealth(
    const HealthCheckRequest& request, absl::string_view own_service) {
  if (!request.service().empty() && request.service() != own_service) {
    return absl::NotFoundError(absl::StrCat("this server has no service '",
                                            Printable(request.service()),
                                            "'; it is ", own_service));
  }
  HealthCheckResponse response;
  response.set_status(HealthCheckResponse::SERVING);
  return response;
}

}  // namespace weir
