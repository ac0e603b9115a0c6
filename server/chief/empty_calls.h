// Counts the calls to the chief that a client begins and drops, of all methods.
//
// gRPC hands a unary call over only once its message is there, and a call of a
// method that nobody has never, so a service does not see them all. An
// interceptor does.
//
// Place: ChiefServer gives one to its builder. A ps counts in GrpcCall: for
// each message an interceptor costs a round of the completion queue.
//
// Threads: safe.
// Owns/borrows: borrows the access control, which must live until the server
//   has shut down.
#ifndef SERVER_CHIEF_EMPTY_CALLS_H_
#define SERVER_CHIEF_EMPTY_CALLS_H_

#include <grpcpp/support/server_interceptor.h>

#include "proto/security/access_control.h"

namespace weir {

class EmptyCalls
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit EmptyCalls(AccessControl* access) : access_(access) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override;

 private:
  AccessControl* const access_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_EMPTY_CALLS_H_
