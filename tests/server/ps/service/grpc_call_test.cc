#include "server/ps/service/grpc_call.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>

#include "proto/ps.grpc.pb.h"
#include "proto/wire/chunk_codec.h"
#include "proto/wire/grpc_deadline.h"
#include "proto/wire/grpc_status.h"

namespace weir {
namespace {

using grpc::ByteBuffer;

constexpr auto kTimeout = std::chrono::seconds(20);

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

// A server whose methods the test says, and a client of it.
struct Tester {
  explicit Tester(GrpcCall::Methods the_methods)
      : methods(std::move(the_methods)) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterAsyncGenericService(&service);
    queue = std::make_unique<CallQueue>(builder.AddCompletionQueue());
    server = builder.BuildAndStart();
    queue->Run();
    host = {.service = &service,
            .methods = &methods,
            .store = store.get(),
            .access = &access};
    GrpcCall::Listen(&host, queue.get());
    stub = ParameterServer::NewStub(
        grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                            grpc::InsecureChannelCredentials()));
  }
  ~Tester() { Stop(); }

  void Stop() {
    if (server != nullptr) {
      server->Shutdown(DeadlineAfter(std::chrono::milliseconds(0)));
      queue->Stop();
      server = nullptr;
    }
  }
  absl::Status Ask(uint32_t hot_ids) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(kTimeout));
    GetStatusRequest request;
    request.set_hot_ids(hot_ids);
    PsStatus reply;
    return FromGrpcStatus(stub->GetStatus(&context, request, &reply));
  }

  GrpcCall::Methods methods;
  std::unique_ptr<Store> store = *Store::Create({});
  grpc::AsyncGenericService service;
  AccessControl access{AccessControl::Options()};
  GrpcCall::Host host;
  std::unique_ptr<CallQueue> queue;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<ParameterServer::Stub> stub;
};

// Answers GetStatus at once; with hot ids when `gate` opens, on a thread of its
// own, which says first that it has `begun`.
struct SlowStatus {
  ~SlowStatus() {
    if (thread.joinable()) {
      thread.join();
    }
  }
  GrpcCall::Methods Methods() {
    return {{"/weir.ParameterServer/GetStatus", [this](GrpcCall* call) {
               return GrpcCall::Handler{[this, call](const ByteBuffer& buffer) {
                 return Take(buffer, call);
               }};
             }}};
  }
  absl::Status Take(const ByteBuffer& buffer, GrpcCall* call) {
    GetStatusRequest request;
    EXPECT_TRUE(DecodeMessage(buffer, &request).ok());
    call->NoMoreQuestions(/*expected=*/1);
    if (request.hot_ids() == 0) {
      call->DeliverReply<PsStatus>(PsStatus());
      return absl::OkStatus();
    }
    thread = std::thread([this, flow = call->shared_from_this()] {
      begun.Open();
      gate.Wait();
      flow->DeliverReply<PsStatus>(PsStatus());
    });
    return absl::OkStatus();
  }

  Gate begun;
  Gate gate;
  std::thread thread;
};

TEST(GrpcCallTest, WhatTakesLongHoldsNothingElseUp) {
  SlowStatus status;
  Tester tester(status.Methods());
  absl::Status slow;
  std::thread other([&] { slow = tester.Ask(10); });
  status.begun.Wait();
  EXPECT_TRUE(tester.Ask(0).ok());
  status.gate.Open();
  other.join();
  EXPECT_TRUE(slow.ok()) << slow;
}

TEST(GrpcCallTest, AnAnswerThatComesAfterTheServersEndIsDropped) {
  SlowStatus status;
  Tester tester(status.Methods());
  absl::Status slow;
  std::thread other([&] { slow = tester.Ask(10); });
  status.begun.Wait();
  tester.Stop();  // waits for no handler
  other.join();
  EXPECT_FALSE(slow.ok());
  // An operation on a queue that was shut down would abort the process.
  status.gate.Open();
}

TEST(GrpcCallTest, AnErrorOfAHandlerAndAMethodThatNobodyHasEndTheCall) {
  Tester tester({{"/weir.ParameterServer/GetStatus", [](GrpcCall*) {
                    return GrpcCall::Handler{[](const ByteBuffer&) {
                      return absl::NotFoundError("nothing here");
                    }};
                  }}});
  EXPECT_EQ(tester.Ask(0), absl::NotFoundError("nothing here"));
  grpc::ClientContext context;
  HelloReply reply;
  EXPECT_EQ(tester.stub->Hello(&context, HelloRequest(), &reply).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST(GrpcCallTest, ACallIsOverWhenItsAnswerHasLeftOrNobodyWaitsForIt) {
  Gate over[2];
  absl::Status ended[2];
  Gate taken;
  Tester tester(
      {{"/weir.ParameterServer/GetStatus", [&](GrpcCall* call) {
          return GrpcCall::Handler{[&, call](const ByteBuffer& buffer) {
            GetStatusRequest request;
            EXPECT_TRUE(DecodeMessage(buffer, &request).ok());
            call->WhenOver(
                [&, number = request.hot_ids()](const absl::Status& status) {
                  ended[number] = status;
                  over[number].Open();
                });
            call->NoMoreQuestions(/*expected=*/1);
            if (request.hot_ids() == 0) {
              call->DeliverReply<PsStatus>(PsStatus());
            } else {
              taken.Open();
            }
            return absl::OkStatus();
          }};
        }}});
  EXPECT_TRUE(tester.Ask(0).ok());
  over[0].Wait();
  EXPECT_TRUE(ended[0].ok()) << ended[0];

  grpc::ClientContext context;
  std::thread canceller([&] {
    taken.Wait();
    context.TryCancel();
  });
  GetStatusRequest request;
  request.set_hot_ids(1);
  PsStatus reply;
  EXPECT_FALSE(tester.stub->GetStatus(&context, request, &reply).ok());
  canceller.join();
  over[1].Wait();
  EXPECT_EQ(ended[1].code(), absl::StatusCode::kCancelled) << ended[1];
}

TEST(GrpcCallTest, ARequestThatFindsNoMemoryEndsItsCallAlone) {
  GrpcCall::Methods methods;
  methods["/weir.ParameterServer/GetStatus"] = [](GrpcCall* call) {
    return GrpcCall::Handler{[call](const ByteBuffer& buffer) {
      GetStatusRequest request;
      EXPECT_TRUE(DecodeMessage(buffer, &request).ok());
      call->NoMoreQuestions(/*expected=*/1);
      if (request.hot_ids() == 1) {
        throw std::bad_alloc();
      }
      call->DeliverReply<PsStatus>(PsStatus());
      return absl::OkStatus();
    }};
  };
  Tester tester(std::move(methods));
  EXPECT_EQ(tester.Ask(1).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(tester.Ask(2).ok());
}

}  // namespace
}  // namespace weir
