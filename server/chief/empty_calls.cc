#include "server/chief/empty_calls.h"

#include <grpcpp/grpcpp.h>

#include <atomic>

namespace weir {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

class CallWithoutMessage : public grpc::experimental::Interceptor {
 public:
  CallWithoutMessage(AccessControl* access, ServerRpcInfo* call)
      : access_(access), call_(call) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::POST_RECV_MESSAGE) &&
        methods->GetRecvMessage() != nullptr) {
      heard_ = true;
    }
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::POST_RECV_CLOSE) &&
        !heard_) {
      access_->OnEmptyCall(call_->server_context()->peer());
    }
    methods->Proceed();
  }

 private:
  AccessControl* const access_;
  ServerRpcInfo* const call_;
  // The end of a call may meet its message.
  std::atomic<bool> heard_{false};
};

}  // namespace

grpc::experimental::Interceptor* EmptyCalls::CreateServerInterceptor(
    ServerRpcInfo* call) {
  return new CallWithoutMessage(access_, call);  // gRPC's
}

}  // namespace weir
