// Calls by the names of methods, which need no stub: whatever the services'
// descriptors name can be tried.
#ifndef TESTS_PROTO_SECURITY_RAW_CALL_H_
#define TESTS_PROTO_SECURITY_RAW_CALL_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"

namespace weir {

// All methods of a file's services, as the wire names them.
inline std::vector<std::string> MethodsOf(
    const google::protobuf::FileDescriptor* file) {
  std::vector<std::string> methods;
  for (int s = 0; s < file->service_count(); ++s) {
    for (int m = 0; m < file->service(s)->method_count(); ++m) {
      methods.push_back(absl::StrCat("/", file->service(s)->full_name(), "/",
                                     file->service(s)->method(m)->name()));
    }
  }
  return methods;
}

// Calls `method` with one message and returns how the call ended; `answer`, if
// any, gets the bytes that came back.
inline grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel,
                            const std::string& method,
                            const std::string& message = "",
                            std::string* answer = nullptr) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(20));
  const grpc::Slice slice(message);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::CompletionQueue queue;
  grpc::ByteBuffer reply;
  grpc::Status status;
  const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
  call->StartCall();
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (status.ok() && answer != nullptr) {
    grpc::Slice bytes;
    (void)reply.DumpToSingleSlice(&bytes);
    answer->assign(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
  }
  return status;
}

}  // namespace weir

#endif  // TESTS_PROTO_SECURITY_RAW_CALL_H_
