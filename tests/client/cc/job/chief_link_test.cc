// What ChiefClient asks of every link to a chief; those of gRPC are in
// chief_client_test.cc.
#include "client/cc/job/chief_link.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "client/cc/job/chief_client.h"
#include "common/base/mutex.h"
#include "proto/wire/wire_version.h"

namespace weir {
namespace {

// A heartbeat whose connection never comes.
class StuckHeartbeat : public HeartbeatStream {
 public:
  void Open() override {
    MutexLock lock(&mutex_);
    while (!cancelled_) {
      changed_.Wait(&mutex_);
    }
  }
  void Cancel() override {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    changed_.NotifyAll();
  }
  bool Read(Command* /*command*/) override { return false; }
  bool Write(const Progress& /*progress*/) override { return false; }
  void WritesDone() override {}
  absl::Status Finish() override { return absl::CancelledError("cancelled"); }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

class StuckLink : public ChiefLink {
 public:
  const std::string& address() const override { return address_; }
  absl::Status Register(const RegisterRequest& /*request*/,
                        std::chrono::milliseconds /*timeout*/,
                        RegisterReply* reply) override {
    reply->set_wire_version(kWireVersion);
    reply->mutable_grant()->mutable_sender()->set_history(1);
    return absl::OkStatus();
  }
  absl::Status Probe(std::chrono::milliseconds /*timeout*/) override {
    return absl::OkStatus();
  }
  std::unique_ptr<HeartbeatStream> NewHeartbeat() override {
    return std::make_unique<StuckHeartbeat>();
  }
  absl::Status PutTrace(const PutTraceRequest& /*request*/,
                        std::chrono::milliseconds /*timeout*/,
                        PutTraceReply* /*reply*/) override {
    return absl::UnavailableError("no connection");
  }
  void CancelPutTrace() override {}

 private:
  const std::string address_ = "chief:1";
};

TEST(ChiefLinkTest, AStreamThatWaitsForItsConnectionKeepsNoWorkerFromEnding) {
  ChiefClient::Options options;
  options.link = std::make_shared<StuckLink>();
  auto client = ChiefClient::Create(std::move(options)).value();
  const absl::StatusOr<Grant> grant = client->Register();
  ASSERT_TRUE(grant.ok()) << grant.status();
  client->Start(*grant, [] {});
  client->Close(absl::OkStatus());  // or the test never ends
}

// Away at first; back while a worker looks for DONE.
class ComesBackLink : public StuckLink {
 public:
  absl::Status Register(const RegisterRequest& request,
                        std::chrono::milliseconds timeout,
                        RegisterReply* reply) override {
    return is_back ? StuckLink::Register(request, timeout, reply)
                   : absl::UnavailableError("no connection");
  }
  std::atomic<bool> is_back{false};
};

TEST(ChiefLinkTest, ASlowLookForDoneIsNoAbsenceOfTheChief) {
  ChiefClient::Options options;
  const auto link = std::make_shared<ComesBackLink>();
  options.link = link;
  options.lost_after = std::chrono::milliseconds(6000);
  options.job_is_done = [&link] {
    link->is_back = true;
    std::this_thread::sleep_for(std::chrono::seconds(2));
    return false;
  };
  auto client = ChiefClient::Create(std::move(options)).value();
  const absl::StatusOr<Grant> grant = client->Register();
  EXPECT_TRUE(grant.ok()) << grant.status();
}

TEST(ChiefLinkTest, AClientWithoutALinkIsRefused) {
  EXPECT_EQ(ChiefClient::Create({}).status().code(),
            absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace weir
