#include "server/ps/service/control_call.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "proto/ps.grpc.pb.h"
#include "proto/wire/grpc_deadline.h"

namespace weir {
namespace {

using Methods =
    ParameterServer::WithAsyncMethod_GetStatus<ParameterServer::Service>;
using Method = UnaryMethod<GetStatusRequest, PsStatus>;

// Opened once.
class Gate {
 public:
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

absl::Status Ask(ParameterServer::Stub* stub, uint32_t hot_ids) {
  grpc::ClientContext context;
  context.set_deadline(DeadlineAfter(std::chrono::seconds(20)));
  GetStatusRequest request;
  request.set_hot_ids(hot_ids);
  PsStatus reply;
  return FromGrpcStatus(stub->GetStatus(&context, request, &reply));
}

TEST(ControlCallTest, WhatTakesLongHoldsNothingElseUp) {
  Methods service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&service);
  CallQueue queue(builder.AddCompletionQueue());
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);

  Gate begun;
  Gate gate;
  WorkThread work;
  auto method = std::make_shared<Method>();
  method->take = [&](grpc::ServerContext* context, GetStatusRequest* request,
                     Method::Writer* writer, grpc::ServerCompletionQueue* calls,
                     void* tag) {
    service.RequestGetStatus(context, request, writer, calls, calls, tag);
  };
  method->answer = [&](const GetStatusRequest& request) {
    if (request.hot_ids() > 0) {
      begun.Open();
      gate.Wait();
    }
    return PsStatus();
  };
  method->thread = &work;
  method->takes_long = [](const GetStatusRequest& request) {
    return request.hot_ids() > 0;
  };
  queue.Run();
  UnaryCall<GetStatusRequest, PsStatus>::Listen(method, &queue);

  const auto channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                           grpc::InsecureChannelCredentials());
  const auto stub = ParameterServer::NewStub(channel);
  absl::Status slow;
  std::thread other([&] { slow = Ask(stub.get(), 10); });
  begun.Wait();
  EXPECT_TRUE(Ask(stub.get(), 0).ok());
  gate.Open();
  other.join();
  EXPECT_TRUE(slow.ok()) << slow;
  server->Shutdown(DeadlineAfter(std::chrono::milliseconds(0)));
  queue.Stop();
}

}  // namespace
}  // namespace weir
