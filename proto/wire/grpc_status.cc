#include "proto/wire/grpc_status.h"

#include <string>

namespace weir {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) {
    return grpc::Status::OK;
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message()));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) {
    return absl::OkStatus();
  }
  // The number comes from the peer, and a code is an instruction to the caller:
  // one that the table in docs/architecture.md lacks must not pass through.
  const int code = status.error_code();
  if (code <= 0 || code > grpc::StatusCode::UNAUTHENTICATED) {
    return absl::UnknownError(status.error_message());
  }
  return absl::Status(static_cast<absl::StatusCode>(code),
                      status.error_message());
}

}  // namespace weir
