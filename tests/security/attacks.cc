#include "tests/security/attacks.h"

#include <chrono>

#include "proto/wire/grpc_status.h"
#include "proto/wire/wire_version.h"
#include "tests/proto/security/raw_call.h"

namespace weir {

std::shared_ptr<grpc::Channel> Attacker::Connect(
    const std::string& address) const {
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("weir");
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

absl::Status Attacker::Call(const std::string& method,
                            const google::protobuf::Message& request,
                            google::protobuf::Message* answer) const {
  const bool of_chief = method.starts_with("/weir.Chief/");
  std::string bytes;
  const absl::Status status =
      FromGrpcStatus(RawCall(Connect(of_chief ? chief : ps), method,
                             request.SerializeAsString(), &bytes));
  if (status.ok() && answer != nullptr && !answer->ParseFromString(bytes)) {
    return absl::InternalError("the answer is no message");
  }
  return status;
}

Sender Attacker::AsReader() const {
  Sender reader = sender;
  reader.clear_generation();
  reader.clear_capability_high();
  reader.clear_capability_low();
  return reader;
}

RegisterRequest Attacker::Registration() const {
  RegisterRequest request;
  request.set_rank(static_cast<uint32_t>(rank));
  request.set_process(666);
  request.set_host("evil-host\nfake");
  request.set_wire_version(kWireVersion);
  *request.mutable_job_spec() = spec;
  *request.mutable_variable() = declaration.variable();
  const Source& data = spec.data().train();
  request.set_sample_count(data.has_digits() ? data.digits().count()
                                             : data.click_log().count());
  return request;
}

void SetDeadline(grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::seconds(20));
}

}  // namespace weir
