#include "client/cc/job/trace_sender.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cc/job/chief_link.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/trace/trace.h"
#include "gtest/gtest.h"
#include "proto/chief.grpc.pb.h"

namespace weir {
namespace {

// A chief that keeps what it gets. Its clock is an hour ahead.
class FakeChief : public Chief::Service {
 public:
  static constexpr int64_t kAheadNs = 3'600'000'000'000;

  FakeChief() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    link = MakeGrpcChiefLink(absl::StrCat("127.0.0.1:", port), nullptr);
  }
  ~FakeChief() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status PutTrace(grpc::ServerContext*, const PutTraceRequest* request,
                        PutTraceReply* reply) override {
    MutexLock lock(&mutex_);
    requests_.push_back(*request);
    changed_.NotifyAll();
    reply->set_now_ns(Clock::Real()->NowNs() + kAheadNs);
    reply->set_same_process(same_process);
    return refuse ? grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full")
                  : grpc::Status::OK;
  }

  using Requests = std::vector<PutTraceRequest>;

  // Waits until `fits` is true for what has come, and returns all.
  Requests WaitFor(const std::function<bool(const Requests&)>& fits) {
    MutexLock lock(&mutex_);
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!fits(requests_) && std::chrono::steady_clock::now() < deadline) {
      changed_.WaitFor(&mutex_, std::chrono::milliseconds(100));
    }
    return requests_;
  }
  Requests WaitForLast() {
    return WaitFor(
        [](const Requests& all) { return !all.empty() && all.back().last(); });
  }

  std::shared_ptr<ChiefLink> link;
  bool same_process = false;
  bool refuse = false;

 private:
  std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<PutTraceRequest> requests_ ABSL_GUARDED_BY(mutex_);
};

TraceOrder Order(uint32_t duration_ms, uint32_t events_max = 1000) {
  TraceOrder order;
  order.set_trace(7);
  order.set_duration_ms(duration_ms);
  order.set_events_max(events_max);
  return order;
}

class TraceSenderTest : public testing::Test {
 protected:
  ~TraceSenderTest() override { TraceRecorder::Process()->Forget(7); }

  // Records one slice as soon as a recording has begun.
  static void DoWork() {
    while (!TraceIsOn()) {
      std::this_thread::yield();
    }
    const TraceSpan span("work");
  }

  FakeChief chief_;
};

TEST_F(TraceSenderTest, RecordsAndSendsWithTheChiefsClock) {
  TraceSender sender(chief_.link.get(), 3);
  sender.Obey(Order(200));
  DoWork();
  const std::vector<PutTraceRequest> requests = chief_.WaitForLast();
  ASSERT_EQ(requests.size(), TraceSender::kClockExchanges + 1);
  EXPECT_FALSE(requests[0].has_part());
  const PutTraceRequest& last = requests.back();
  EXPECT_EQ(last.trace(), 7);
  EXPECT_EQ(last.rank(), 3);
  EXPECT_EQ(last.process(), TraceRecorder::Process()->process());
  ASSERT_EQ(last.part().lane_size(), 1);
  EXPECT_EQ(last.part().name(0), "work");
  // Its own clock is an hour behind, up to half of the quickest exchange.
  EXPECT_NEAR(static_cast<double>(last.part().ahead_ns()),
              static_cast<double>(-FakeChief::kAheadNs),
              static_cast<double>(last.part().delay_ns()) / 2 + 1);
  EXPECT_LT(last.part().delay_ns(), 1'000'000'000u);
}

TEST_F(TraceSenderTest, KeepsToTheChiefsBound) {
  TraceSender sender(chief_.link.get(), 0);
  sender.Obey(Order(200, /*events_max=*/1));
  DoWork();
  DoWork();
  const std::vector<PutTraceRequest> requests = chief_.WaitForLast();
  EXPECT_EQ(requests.back().part().lane(0).event_size(), 1);
  EXPECT_EQ(requests.back().part().dropped(), 1);
}

TEST_F(TraceSenderTest, SendsNothingToAChiefInItsOwnProcess) {
  chief_.same_process = true;
  TraceSender sender(chief_.link.get(), 0);
  sender.Obey(Order(50));
  DoWork();
  const std::vector<PutTraceRequest> requests = chief_.WaitForLast();
  EXPECT_TRUE(requests.back().last());
  EXPECT_FALSE(requests.back().has_part());
  // The chief still reads it.
  EXPECT_TRUE(TraceRecorder::Process()->Read(7).ok());
}

TEST_F(TraceSenderTest, ARefusalEndsIt) {
  chief_.refuse = true;
  TraceSender sender(chief_.link.get(), 0);
  sender.Obey(Order(1));
  const std::vector<PutTraceRequest> requests = chief_.WaitFor(
      [](const std::vector<PutTraceRequest>& all) { return !all.empty(); });
  EXPECT_EQ(requests.size(), 1) << "a timeline is worth no repeats";
}

TEST_F(TraceSenderTest, EndsAtOnceInTheMiddle) {
  const auto begin = std::chrono::steady_clock::now();
  {
    TraceSender sender(chief_.link.get(), 0);
    sender.Obey(Order(60'000));
    DoWork();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace weir
