#include "proto/wire/grpc_status.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/base/printable.h"

namespace weir {
namespace {

// Why a handshake failed, in a sentence; "" for any other message. The words
// are those of gRPC and OpenSSL.
std::string HandshakeFailure(const std::string& message) {
  constexpr char kRefused[] = "Custom verification check failed with error: ";
  if (const size_t at = message.find(kRefused); at != std::string::npos) {
    return absl::StrCat("this peer is not the one that was called: ",
                        message.substr(at + sizeof(kRefused) - 1));
  }
  if (absl::StrContains(message, "wrong version number")) {
    return "this peer does not speak TLS: is it --insecure?";
  }
  if (absl::StrContains(message, "SSL_ERROR_SSL")) {
    return absl::StrCat(
        "this peer does not prove to be of this job: it has another secret, "
        "or a certificate that this task's ca.crt did not sign, or that has "
        "expired (",
        message.substr(message.find("SSL_ERROR_SSL")), ")");
  }
  return "";
}

}  // namespace

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
  if (code == grpc::StatusCode::UNAVAILABLE) {
    const std::string why = HandshakeFailure(message);
    if (!why.empty()) {
      return absl::UnauthenticatedError(why);
    }
  }
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

absl::Status FromGrpcStatus(const grpc::Status& status,
                            std::atomic<bool>* answered) {
  const absl::Status result = FromGrpcStatus(status);
  if (status.ok()) {
    *answered = true;
  } else if (status.error_code() == grpc::StatusCode::UNAVAILABLE &&
             *answered) {
    return absl::UnavailableError(result.message());
  }
  return result;
}

}  // namespace weir
