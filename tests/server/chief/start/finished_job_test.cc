#include "server/chief/start/finished_job.h"

#include <atomic>

#include "gtest/gtest.h"
#include "server/ps/store/store.h"
#include "tests/support/in_process_transport.h"

namespace weir {
namespace {

Declaration SmallJob(const std::string& job) {
  Declaration declaration;
  declaration.set_job(job);
  declaration.set_history(7);
  declaration.set_shard_count(2);
  declaration.set_slot_count(1);
  declaration.set_block_elements(16);
  declaration.mutable_update()->mutable_async();
  Group* const group = declaration.add_group();
  group->mutable_optimizer()->mutable_sgd();
  group->mutable_schedule()->set_learning_rate(1.0);
  Variable* const variable = declaration.add_variable();
  variable->set_name("w");
  variable->add_shape(64);
  return declaration;
}

class FinishedJobTest : public testing::Test {
 protected:
  FinishedJobTest() {
    for (int s = 0; s < 2; ++s) {
      Store::Options options;
      options.incarnation = 100 + s;
      stores_.push_back(Store::Create(options).value());
      transport_.Serve("ps" + std::to_string(s), stores_.back().get());
    }
  }

  void Declare(int s, const std::string& job) {
    DeclareRequest request;
    *request.mutable_declaration() = SmallJob(job);
    request.set_shard(static_cast<uint32_t>(s));
    const absl::Status status = stores_[s]->Declare(request).status();
    ASSERT_TRUE(status.ok()) << status;
  }

  std::unique_ptr<FinishedJob> Serve(int wait_ms = 600000) {
    FinishedJob::Options options;
    options.job = "mine";
    options.ps_addresses = {"ps0", "ps1"};
    options.worker_count = 2;
    options.transport = &transport_;
    options.wait = std::chrono::milliseconds(wait_ms);
    options.on_end = [this] {
      MutexLock lock(&mutex_);
      ended_ = true;
      changed_.NotifyAll();
    };
    return std::make_unique<FinishedJob>(std::move(options));
  }

  bool Ended() {
    MutexLock lock(&mutex_);
    return ended_;
  }

  void WaitForTheEnd() {
    MutexLock lock(&mutex_);
    while (!ended_) {
      changed_.Wait(&mutex_);
    }
  }

  static RegisterRequest From(uint32_t index) {
    RegisterRequest request;
    request.set_rank(index);
    return request;
  }

  InProcessTransport transport_;
  std::vector<std::unique_ptr<Store>> stores_;
  Mutex mutex_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST_F(FinishedJobTest, TellsEveryWorkerAndEveryPsThenEnds) {
  Declare(0, "mine");  // the other one is EMPTY
  const auto job = Serve();
  const RegisterReply reply = job->Register(From(0));
  EXPECT_TRUE(reply.has_over());
  EXPECT_EQ(reply.over().code(), 0u);
  job->Register(From(0));
  EXPECT_FALSE(Ended());
  EXPECT_TRUE(job->Register(From(7)).has_over());
  job->Register(From(1));
  WaitForTheEnd();
  EXPECT_TRUE(transport_.was_shut_down("ps0"));
  EXPECT_TRUE(transport_.was_shut_down("ps1"));
}

TEST_F(FinishedJobTest, APsOfAnotherJobIsLeftAlone) {
  Declare(0, "mine");
  Declare(1, "other");
  const auto job = Serve();
  job->Register(From(0));
  job->Register(From(1));
  WaitForTheEnd();
  EXPECT_TRUE(transport_.was_shut_down("ps0"));
  EXPECT_FALSE(transport_.was_shut_down("ps1"));
}

TEST_F(FinishedJobTest, WaitsOnlySoLongForThoseThatStayAway) {
  const auto job = Serve(/*wait_ms=*/20);
  WaitForTheEnd();
}

TEST_F(FinishedJobTest, ASignalEndsIt) {
  const auto job = Serve();
  EXPECT_FALSE(Ended());
  job->Leave();
  WaitForTheEnd();
}

}  // namespace
}  // namespace weir
