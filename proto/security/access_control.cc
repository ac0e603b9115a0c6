#include "proto/security/access_control.h"

#include <chrono>
#include <utility>

#include "common/base/status.h"
#include "proto/security/authorisation.h"

namespace weir {

AccessControl::AccessControl(Options options)
    : options_(std::move(options)),
      security_(Security::OrInsecure(options_.security)),
      audit_(options_.audit_path) {}

absl::Status AccessControl::Listen(const std::string& address,
                                   grpc::ServerBuilder* builder) {
  Listener::Options options;
  options.address = address;
  options.credentials = security_->ForServer();
  options.connections_max = options_.connections_max;
  options.unproven_max = options_.unproven_max;
  options.on_closed = [this](const std::string& peer) {
    audit_.Add({.peer = "",
                .address = peer,
                .method = "",
                .status = absl::ResourceExhaustedError(
                    "the connection was closed: there were too many, or it "
                    "dropped too many calls"),
                .detail = ""});
  };
  using std::chrono::milliseconds;
  builder->AddChannelArgument(
      GRPC_ARG_MAX_CONNECTION_IDLE_MS,
      static_cast<int>(milliseconds(kConnectionIdle).count()));
  if (security_->mode() == Security::Mode::kCertificates) {
    builder->AddChannelArgument(
        GRPC_ARG_MAX_CONNECTION_AGE_MS,
        static_cast<int>(milliseconds(options_.connection_age).count()));
    builder->AddChannelArgument(
        GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
        static_cast<int>(milliseconds(options_.connection_grace).count()));
  }
  WEIR_ASSIGN_OR_RETURN(listener_,
                        Listener::Create(std::move(options), builder));
  return absl::OkStatus();
}

absl::Status AccessControl::Check(const std::string& method,
                                  const grpc::ServerContextBase& context,
                                  Caller* caller) const {
  caller->address = context.peer();
  if (!security_->secured()) {  // I1
    return absl::OkStatus();
  }
  WEIR_ASSIGN_OR_RETURN(caller->identity,
                        security_->Identify(*context.auth_context()));
  return Authorise(method, *caller->identity, options_.has_chief);
}

absl::StatusOr<Caller> AccessControl::Admit(
    const std::string& method, const grpc::ServerContextBase& context) {
  Caller caller;
  const absl::Status status = Check(method, context, &caller);
  if (!status.ok()) {
    RecordRefusal(caller, method, status);
    return status;
  }
  if (listener_ != nullptr) {
    listener_->MarkProven(caller.address);
  }
  MutexLock lock(&mutex_);
  ++CountsOf(caller.name())->calls;
  return caller;
}

void AccessControl::Record(const Caller& caller, const std::string& method,
                           const absl::Status& status,
                           const std::string& detail) {
  audit_.Add({.peer = caller.name(),
              .address = caller.address,
              .method = method,
              .status = status,
              .detail = detail});
}

void AccessControl::RecordRefusal(const Caller& caller,
                                  const std::string& method,
                                  const absl::Status& status) {
  Record(caller, method, status);
  MutexLock lock(&mutex_);
  ++CountsOf(caller.name())->refused;
}

AccessControl::Counts* AccessControl::CountsOf(const std::string& name) {
  if (counts_.size() >= kCallerNamesMax && !counts_.contains(name)) {
    return &counts_["others"];
  }
  return &counts_[name];
}

std::map<std::string, AccessControl::Counts> AccessControl::counts() const {
  MutexLock lock(&mutex_);
  return counts_;
}

}  // namespace weir
