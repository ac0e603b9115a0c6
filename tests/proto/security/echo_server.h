// A gRPC server that answers every call with the caller's identity.
#ifndef TESTS_PROTO_SECURITY_ECHO_SERVER_H_
#define TESTS_PROTO_SECURITY_ECHO_SERVER_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/security/access_control.h"
#include "proto/security/listener.h"
#include "proto/security/security.h"
#include "proto/wire/grpc_channel.h"
#include "proto/wire/grpc_status.h"
#include "tests/proto/security/raw_call.h"

namespace weir {

class EchoServer : public grpc::CallbackGenericService {
 public:
  // `access` decides on calls, if there is one. Borrowed.
  explicit EchoServer(std::shared_ptr<const Security> security,
                      Listener::Options options = {},
                      AccessControl* access = nullptr)
      : security_(std::move(security)), access_(access) {
    grpc::ServerBuilder builder;
    AddServerArguments(&builder);
    options.address = "127.0.0.1:0";
    options.credentials = security_->ForServer();
    listener_ = *Listener::Create(std::move(options), &builder);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    listener_->Start();
  }
  ~EchoServer() override {
    listener_->Stop();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  Listener& listener() { return *listener_; }
  std::string address() const {
    return absl::StrCat("127.0.0.1:", listener_->port());
  }

  // Calls the server and returns what it answers. Every call has a connection
  // of its own.
  absl::StatusOr<std::string> Call(
      const std::shared_ptr<grpc::ChannelCredentials>& credentials,
      const std::string& method = "/weir.Echo/Who") const {
    grpc::ChannelArguments arguments = CommonChannelArguments();
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return CallOn(grpc::CreateCustomChannel(address(), credentials, arguments),
                  method);
  }
  static absl::StatusOr<std::string> CallOn(
      const std::shared_ptr<grpc::Channel>& channel,
      const std::string& method = "/weir.Echo/Who") {
    std::string answer;
    const grpc::Status status = RawCall(channel, method, "", &answer);
    if (!status.ok()) {
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                          status.error_message());
    }
    return answer;
  }

 private:
  class Reply : public grpc::ServerGenericBidiReactor {
   public:
    Reply(const std::string& text, const grpc::Status& status) {
      if (!status.ok()) {
        Finish(status);
        return;
      }
      const grpc::Slice slice(text);
      buffer_ = grpc::ByteBuffer(&slice, 1);
      StartWriteAndFinish(&buffer_, grpc::WriteOptions(), status);
    }
    void OnDone() override { delete this; }

   private:
    grpc::ByteBuffer buffer_;
  };

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    listener_->MarkProven(context->peer());
    if (access_ != nullptr) {
      const auto caller = access_->Admit(context->method(), *context);
      if (!caller.ok()) {
        return new Reply("", ToGrpcStatus(caller.status()));
      }
    }
    if (!security_->secured()) {
      return new Reply("anybody", grpc::Status::OK);
    }
    const auto peer = security_->Identify(*context->auth_context());
    if (!peer.ok()) {
      return new Reply("", ToGrpcStatus(peer.status()));
    }
    return new Reply(peer->ToUri(), grpc::Status::OK);
  }

  const std::shared_ptr<const Security> security_;
  AccessControl* const access_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace weir

#endif  // TESTS_PROTO_SECURITY_ECHO_SERVER_H_
