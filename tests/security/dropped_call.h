// A call that its client drops as soon as it has begun.
#ifndef TESTS_SECURITY_DROPPED_CALL_H_
#define TESTS_SECURITY_DROPPED_CALL_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <string>

namespace weir {

// `queue` has nothing else under way.
inline void BeginAndDropCall(grpc::GenericStub* stub, const std::string& method,
                             grpc::CompletionQueue* queue) {
  grpc::ClientContext context;
  const auto call = stub->PrepareCall(&context, method, queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  queue->Next(&tag, &ok);
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue->Next(&tag, &ok);
}

}  // namespace weir

#endif  // TESTS_SECURITY_DROPPED_CALL_H_
