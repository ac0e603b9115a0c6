#include "server/ps/service/call_queue.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <vector>

#include "proto/ps.grpc.pb.h"

namespace weir {
namespace {

// A queue of a server that nobody calls; alarms stand for its operations.
class Tester {
 public:
  Tester() {
    builder_.RegisterService(&service_);
    queue_ = std::make_unique<CallQueue>(builder_.AddCompletionQueue());
    server_ = builder_.BuildAndStart();
  }
  ~Tester() { Stop(); }

  CallQueue& queue() { return *queue_; }

  // An operation that ends at once.
  void Fire(CallOperation* operation, std::shared_ptr<void> call) {
    alarms_.push_back(std::make_unique<grpc::Alarm>());
    alarms_.back()->Set(queue_->queue(), std::chrono::system_clock::now(),
                        queue_->Start(operation, std::move(call)));
  }
  void Stop() {
    if (!stopped_) {
      stopped_ = true;
      server_->Shutdown();
      queue_->Stop();
    }
  }

 private:
  ParameterServer::WithAsyncMethod_GetStatus<ParameterServer::Service> service_;
  grpc::ServerBuilder builder_;
  std::unique_ptr<CallQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  bool stopped_ = false;
  std::vector<std::unique_ptr<grpc::Alarm>> alarms_;
};

struct Call {
  explicit Call(std::function<void(bool)> handler)
      : operation(std::move(handler)) {}
  CallOperation operation;
};

TEST(CallQueueTest, ACallLivesUntilItsOperationWasReported) {
  Tester tester;
  int reports = 0;
  auto call = std::make_shared<Call>([&reports](bool ok) {
    EXPECT_TRUE(ok);
    ++reports;
  });
  const std::weak_ptr<Call> alive = call;
  tester.Fire(&call->operation, call);
  call.reset();
  EXPECT_FALSE(alive.expired());  // only the operation holds it
  tester.queue().Run();
  tester.Stop();  // waits for the operation
  EXPECT_EQ(reports, 1);
  EXPECT_TRUE(alive.expired());
}

TEST(CallQueueTest, AHandlerMayStartItsOwnOperationAgain) {
  Tester tester;
  int reports = 0;
  std::weak_ptr<Call> alive;
  auto call = std::make_shared<Call>([&](bool) {
    const std::shared_ptr<Call> self = alive.lock();
    ASSERT_NE(self, nullptr);
    if (++reports < 3) {
      tester.Fire(&self->operation, self);
    }
  });
  alive = call;
  tester.Fire(&call->operation, call);
  call.reset();
  tester.queue().Run();
  tester.Stop();
  EXPECT_EQ(reports, 3);
  EXPECT_TRUE(alive.expired());
}

TEST(CallQueueTest, AQueueThatNeverRanCanBeStopped) {
  Tester tester;
  tester.Stop();
}

TEST(CallQueueTest, ACallThatFindsNoMemoryEndsAlone) {
  Tester tester;
  int reports = 0;
  const auto failing =
      std::make_shared<Call>([](bool) -> void { throw std::bad_alloc(); });
  const auto next = std::make_shared<Call>([&reports](bool) { ++reports; });
  tester.queue().Run();
  tester.Fire(&failing->operation, failing);
  tester.Fire(&next->operation, next);
  tester.Stop();  // waits for both
  EXPECT_EQ(reports, 1);
}

}  // namespace
}  // namespace weir
