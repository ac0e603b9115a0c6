#include "proto/wire/grpc_status.h"

#include <string>

#include "common/base/limits.h"
#include "common/base/printable.h"

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
  const std::string message =
      Printable(status.error_message(), kPeerMessageBytesMax);
  if (code <= 0 || code > grpc::StatusCode::UNAUTHENTICATED) {
    return absl::UnknownError(message);
  }
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

}  // namespace weir
